"""Single changes to a source file, each of which some test should notice. Found in the syntax tree, made in the text.

The text is changed only where the change is, so comments and layout stay, and line numbers with them. What mypy or the
import would notice alone (annotations, decorators, `__all__`) is left out.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass

COMPARISONS = {
    ast.Lt: ("<", "<=", ">"),
    ast.LtE: ("<=", "<", ">="),
    ast.Gt: (">", ">=", "<"),
    ast.GtE: (">=", ">", "<="),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")}
ARITHMETIC |= {ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "*")}
OPPOSITES = [("min", "max"), ("any", "all"), ("minimum", "maximum"), ("floor", "ceil"), ("argmin", "argmax")]
SWAPS = {**dict(OPPOSITES), **{b: a for a, b in OPPOSITES}}
EDGES = {"left": "right", "right": "left"}  # the side of numpy.searchsorted


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to one file: `text[start:end]` becomes `new`."""

    file: str
    line: int
    source: str
    """The line as it stands, without its indentation."""
    change: str
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        """Return the file's text with the change in it."""
        return text[: self.start] + self.new + text[self.end :]

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.change}  in  {self.source}"


def mutants_of(file: str, text: str) -> list[Mutant]:
    """Return every change that can be made to `text`, in the order of the file."""
    finder = _Finder(text)
    finder.visit(ast.parse(text))
    lines = text.splitlines()
    found = {}
    for start, end, new, change in finder.found:
        line = text.count("\n", 0, start) + 1
        mutant = Mutant(
            file=file, line=line, source=lines[line - 1].strip(), change=change, start=start, end=end, new=new
        )
        found[start, end, new] = mutant
    return [found[key] for key in sorted(found)]


class _Finder(ast.NodeVisitor):
    """Collects (start, end, new text, what it is) while it walks."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[tuple[int, int, str, str]] = []
        lines = text.splitlines(keepends=True)
        self._lines = lines
        self._starts = [0, *itertools.accumulate(len(line) for line in lines)]

    def _at(self, line: int, column: int) -> int:
        """The tree counts bytes within a line, the text characters."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _replace(self, node: ast.expr | ast.stmt, new: str, change: str) -> None:
        self.found.append((*self._span(node), new, change))

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> None:
        """Change the operator that stands between two operands."""
        start = self._span(left)[1]
        gap = self.text[start : self._span(right)[0]]
        if old in gap:
            at = start + gap.index(old)
            self.found.append((at, at + len(old), new, f"{old} → {new}"))

    def _drop(self, node: ast.expr, prefix: str) -> None:
        start = self._span(node)[0]
        self.found.append((start, start + len(prefix), "", f"{prefix} dropped"))

    def visit_Compare(self, node: ast.Compare) -> None:
        for (left, right), operator in zip(itertools.pairwise([node.left, *node.comparators]), node.ops, strict=True):
            old, *others = COMPARISONS[type(operator)]
            for new in others:
                self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
        if type(node.op) in ARITHMETIC and not text:
            self._between(node.left, node.right, *ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in itertools.pairwise(node.values):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._drop(node, "not")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self._drop(node, "-")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, str(not value), f"{value} → {not value}")
        elif isinstance(value, (int, float)):
            source = ast.get_source_segment(self.text, node) or str(value)
            new = f"({value} + 1)" if value + 1 != value else "1"
            self._replace(node, new, f"{source} → {source} + 1")
        elif isinstance(value, str) and value in EDGES:
            self._replace(node, f'"{EDGES[value]}"', f"{value} → {EDGES[value]}")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in SWAPS and isinstance(node.ctx, ast.Load):
            self._replace(node, SWAPS[node.id], f"{node.id} → {SWAPS[node.id]}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in SWAPS:
            end = self._span(node)[1]
            self.found.append((end - len(node.attr), end, SWAPS[node.attr], f"{node.attr} → {SWAPS[node.attr]}"))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            start, end = self._span(keyword)
            if keyword.arg not in (None, "strict") and not _is_text(keyword.value):
                comma = self.text[end:].find(",")  # up to and with the comma, where nothing but blanks is before it
                end = end + comma + 1 if comma >= 0 and not self.text[end : end + comma].strip() else end
                self.found.append((start, end, "", f"{keyword.arg}= dropped"))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: it guards against a slip of the programmer, and no input reaches it
            self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._replace(condition, "True", "filter dropped")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._replace(node.test, "False", "condition → False")
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._replace(node.value, "None", "returned value → None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self._replace(node, "pass", "statement dropped")
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._replace(node, "pass", "statement dropped")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets):
            return
        if not any(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets):
            self._replace(node, "pass", "statement dropped")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace(node, "pass", "continue dropped")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace(node, "pass", "break dropped")

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace(node, "pass", "raise dropped")  # what it says is text

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for child in node.body:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        for child in node.body:
            self.visit(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in EDGES
