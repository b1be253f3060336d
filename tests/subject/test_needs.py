"""The `[subject]` table of a scenario: what is measured and what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.scenario import Scenario, load_scenario


def scenario(folder: Path, subject: str) -> Scenario:
    path = folder / "s.toml"
    path.write_text(f'description = "d"\n[engine]\nfactory = "a:b"\n{subject}')
    return load_scenario(str(path))


def test_requirements_have_one_spelling_and_belong_to_what_is_measured(tmp_path: Path) -> None:
    plain = scenario(tmp_path, "")
    assert "subject" not in plain.document()  # results of scenarios without it keep their hash
    one = scenario(tmp_path, '[subject]\npackage = "verl"\nrequirements = ["torch == 2.13.0", "numpy < 2"]\n')
    assert (one.subject.package, one.subject.requirements) == ("verl", ("torch==2.13.0", "numpy<2"))
    same = scenario(tmp_path, '[subject]\npackage = "verl"\nrequirements = ["torch==2.13.0", "numpy<2"]\n')
    other = scenario(tmp_path, '[subject]\npackage = "verl"\nrequirements = ["torch==2.13.0", "numpy<3"]\n')
    assert one.hash == same.hash
    assert len({plain.hash, one.hash, other.hash}) == 3


@pytest.mark.parametrize(
    ("subject", "complaint"),
    [
        ('package = "verl.workers"', "expected the name of an import package"),
        ("package = 3", "expected the name of an import package"),
        ('requirements = "torch"', "expected a list of requirements"),
        ('requirements = ["torch", 2]', "expected a list of requirements"),
        ('requirements = ["torch=2"]', "'torch=2' is no requirement"),
        ('pakage = "verl"', "has no key 'pakage'.*package"),
    ],
)
def test_what_it_cannot_be_is_refused(tmp_path: Path, subject: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        scenario(tmp_path, f"[subject]\n{subject}\n")
