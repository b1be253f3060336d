"""Reads a page as a browser would, without one: a tree of elements, and what must hold for every page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

VOID = {"meta", "link", "br", "wbr", "input", "img", "hr"}
SVG_VOID = {"path", "rect", "use", "circle", "line"}
COMPARISON_SECTIONS = [
    "verdict",
    "pairs",
    "attribution",
    "trees",
    "steps",
    "gpu",
    "findings",
    "metrics",
    "environment",
    "commits",
    "method",
    "reproduce",
]


@dataclass(eq=False)
class Element:
    tag: str
    attributes: dict[str, str]
    children: list[Element | str] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        """This element and all below it."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.walk() if element.tag == tag]

    def by_id(self, anchor: str) -> Element:
        return next(element for element in self.walk() if element.attributes.get("id") == anchor)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("#document", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].children.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(page: str) -> Element:
    """Return the tree of a page. AssertionError where a tag is left open or closed by another."""
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert parser.open == [parser.root], f"left open: {[element.tag for element in parser.open[1:]]}"
    return parser.root


def check_page(page: str) -> Element:
    """Check what every page must hold, whatever its names are, and return its tree."""
    root = parse(page)
    elements = list(root.walk())
    ids = [element.attributes["id"] for element in elements if "id" in element.attributes]
    assert len(ids) == len(set(ids)), [one for one in ids if ids.count(one) > 1][:5]
    assert len(root.all("script")) == 1, "a name became a script"
    assert len(root.all("h1")) == 1
    assert [len(root.all(tag)) for tag in ("main", "nav", "header", "footer", "title")] == [1] * 5
    levels = [int(element.tag[1]) for element in elements if element.tag in ("h1", "h2", "h3", "h4")]
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    for element in elements:
        _check_element(element, set(ids))
    return root


def _check_element(element: Element, ids: set[str]) -> None:
    attributes = element.attributes
    assert element.tag not in ("iframe", "object", "embed", "form", "base", "img", "b", "x"), element.tag
    assert not [name for name in attributes if name.startswith("on")], attributes
    for name in ("href", "src"):
        if name in attributes:
            target = attributes[name]
            assert target.startswith(("#", "./", "data:,")), f"leaves the page: {target}"
            assert not target.startswith("#") or target[1:] in ids, f"{target} leads nowhere"
    if element.tag == "th":
        assert attributes.get("scope") in ("row", "col"), attributes
    if element.tag == "svg" and attributes.get("class") == "plot":
        assert attributes["role"] == "img"
        assert attributes["aria-label"].strip()
    if element.tag == "button":
        assert element.text.strip() or attributes.get("aria-label")
    if "aria-labelledby" in attributes:
        assert attributes["aria-labelledby"] in ids
