"""README and docs stay true: generated tables, links, file names, function names, ADR heads."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.generated import stale_blocks

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "streamhouse"

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(?<![\w./-])((?:[a-z_0-9]+/)+[a-z_0-9]+\.py)\b")
_FOLDER = re.compile(r"(?<![\w./-])(streamhouse/(?:[a-z_0-9]+/)*)(?![\w{*])")
_FUNCTION = re.compile(r"`(?:[A-Za-z_]+\.)?([a-z_0-9]+)\(\)`")
_STATUS = re.compile(r"^- Status: (accepted|proposed|superseded by \d{4})$", re.MULTILINE)
_DATE = re.compile(r"^- Date: \d{4}-\d{2}-\d{2}$", re.MULTILINE)
_HOME = re.compile(r"(?<![\w.])/(?:home|Users)/[A-Za-z]|(?<![\w.])/ro[o]t/")
_ADR_NAME = re.compile(r"^\d{4}-[a-z0-9-]+\.md$")
_ADR_PARTS = (
    "Problem",
    "Decision",
    "Alternatives",
    "Limits",
    "Failure modes",
    "How it is tested",
    "Cost",
)
_SKIPPED_FOLDERS = {"__pycache__", "build", "dist", "streamhouse-data"}
_TEXT = {".py", ".md", ".toml", ".sql", ".json", ".txt", ".cfg", ".yml", ".yaml", ".sh", ""}


def pages() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    assert len(found) > 10, "the docs are not where this test looks"
    return found


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_generated_tables_say_what_the_code_says() -> None:
    stale = stale_blocks()
    assert not stale, f"out of date, run `make docs`: {stale}"


def test_relative_links_lead_somewhere() -> None:
    faults = []
    for page in pages():
        for target in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            if not re.match(r"[a-z]+:", target) and not _leads_somewhere(page, target):
                faults.append(f"{shown(page)}: {target}")
    assert not faults, "\n".join(faults)


def _leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return False
    if not anchor or path.suffix != ".md":
        return True
    headings = _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))
    return anchor in {_anchor_of(heading) for heading in headings}


def _anchor_of(heading: str) -> str:
    """As code hosting sites make them: lower case, no punctuation, dashes for spaces."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def test_every_page_can_be_found_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for target in _LINK.findall(index.read_text(encoding="utf-8"))
    }
    lost = [shown(page) for page in pages() if page.parent != ROOT and page not in linked | {index}]
    assert not lost, f"docs/README.md does not link {lost}"


def test_files_named_in_the_docs_exist() -> None:
    faults = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for name in {*_FILE.findall(text), *_FOLDER.findall(text)}:
            if not (ROOT / name).exists() and not (CODE / name).exists():
                faults.append(f"{shown(page)}: {name}")
    assert not faults, "\n".join(faults)


def test_functions_named_in_the_docs_exist() -> None:
    known = set(_functions())
    faults = []
    for page in pages():
        for name in _FUNCTION.findall(page.read_text(encoding="utf-8")):
            if name not in known:
                faults.append(f"{shown(page)}: {name}()")
    assert not faults, "\n".join(faults)


def _functions() -> Iterator[str]:
    for path in CODE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node.name


def test_decision_records_have_their_parts() -> None:
    faults = []
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert records
    for record in records:
        text = record.read_text(encoding="utf-8")
        headings = {heading.strip() for heading in _HEADING.findall(text)}
        missing = [part for part in _ADR_PARTS if not any(h.startswith(part) for h in headings)]
        if not _ADR_NAME.match(record.name):
            missing.append("a name such as 0001-some-words.md")
        if not _STATUS.search(text):
            missing.append("- Status: ...")
        if not _DATE.search(text):
            missing.append("- Date: YYYY-MM-DD")
        faults += [f"{record.name}: no {part}" for part in missing]
    assert not faults, "\n".join(faults)


def test_decision_records_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "docs" / "adr").glob("*.md"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_no_path_of_anybodys_home_is_in_the_tree() -> None:
    faults = []
    for path in _texts(ROOT):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if _HOME.search(line):
                faults.append(f"{shown(path)}:{number}")
    assert not faults, "\n".join(faults)


def _texts(folder: Path) -> Iterator[Path]:
    """Our own text files; what tools leave behind is hidden or listed above."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            tool = path.name in _SKIPPED_FOLDERS or path.name.endswith(".egg-info")
            if not hidden and not tool:
                yield from _texts(path)
        elif path.suffix in _TEXT:
            yield path
