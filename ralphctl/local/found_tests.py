"""The command that runs a directory's tests, told from its files. Nothing is run.

What the project itself calls its tests comes first (a target, a recipe, a script), then what its language
runs by default.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ralphctl.local.found import names_in, read, read_json, read_toml, within

_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_JUSTFILES = ("justfile", "Justfile", ".justfile")
_SCRIPTS = ("script/test", "bin/test", "scripts/test.sh", "test.sh", "run_tests.sh")
_NO_TESTS = re.compile(r"\bno tests? specified\b")  # what `npm init` writes
_WATCHES = re.compile(r"(?:^|\s)--?watch(?:All)?(?!\S)|--watch(?:All)?=true")
_RECIPE = re.compile(r"@?test(?:[ \t][^:#]*)?:(?!=)")
_NODE_LOCKS = (
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("bun.lock", "bun"),
    ("bun.lockb", "bun"),
    ("package-lock.json", "npm"),
    ("npm-shrinkwrap.json", "npm"),
)
_NODE_TESTS: Mapping[str, str] = {
    "npm": "npm test",
    "pnpm": "pnpm test",
    "yarn": "yarn test",
    "bun": "bun run test",
}
_PYTHON_RUNNERS = (
    ("uv.lock", "uv run pytest"),
    ("poetry.lock", "poetry run pytest"),
    ("pdm.lock", "pdm run pytest"),
    ("Pipfile.lock", "pipenv run pytest"),
)
_BY_FILE = (
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("mix.exs", "mix test"),
    ("Package.swift", "swift test"),
    ("build.sbt", "sbt test"),
    ("stack.yaml", "stack test"),
    ("dune-project", "dune test"),
    ("rebar.config", "rebar3 eunit"),
    ("build.zig", "zig build test"),
    ("pubspec.yaml", "dart test"),
    ("phpunit.xml", "vendor/bin/phpunit"),
    ("phpunit.xml.dist", "vendor/bin/phpunit"),
)


@dataclass(frozen=True, slots=True)
class FoundTests:
    """A command for ``/bin/sh -c``, and the file that tells of it. ``fault``: why it would not do."""

    command: str
    source: str
    fault: str = ""


class _Place(NamedTuple):
    directory: Path
    names: frozenset[str]


def found_tests(directory: Path, path: str) -> tuple[FoundTests, ...]:
    """Every command that the files tell of, best first; those that would not do are last.

    ``path`` is where programs are looked for.
    """
    place = _Place(directory, names_in(directory))
    ways = (_make, _just, _scripts, _node, _deno, _python, _ruby, _jvm, _php, _dotnet, _by_file)
    told: dict[str, FoundTests] = {}
    for way in ways:
        for each in way(place):
            told.setdefault(each.command, _checked(each, directory, path))
    return tuple(sorted(told.values(), key=lambda each: bool(each.fault)))


def _checked(tests: FoundTests, directory: Path, path: str) -> FoundTests:
    """The same, with the fault that its program is not there."""
    program = tests.command.split()[0]
    there = os.access(directory / program, os.X_OK) if "/" in program else shutil.which(program, path=path)
    if tests.fault or there:
        return tests
    why = "is not there" if "/" in program else "is not on PATH"
    return FoundTests(tests.command, tests.source, f"{program} {why}")


def _make(place: _Place) -> Iterator[FoundTests]:
    name = next((name for name in _MAKEFILES if name in place.names), None)
    if name and _has_target(read(place.directory, name) or ""):
        yield FoundTests("make test", f"{name}, target test")


def _just(place: _Place) -> Iterator[FoundTests]:
    name = next((name for name in _JUSTFILES if name in place.names), None)
    lines = (read(place.directory, name) or "").splitlines() if name else []
    if any(_RECIPE.match(line) for line in lines):
        yield FoundTests("just test", f"{name}, recipe test")


def _has_target(text: str) -> bool:
    return any(_names_test(line) for line in text.splitlines())


def _names_test(line: str) -> bool:
    """Whether a line begins a rule for ``test``; ``test := x`` is a variable."""
    head, colon, rest = line.partition(":")
    is_rule = bool(colon) and not rest.lstrip(":").startswith("=") and not line[:1].isspace()
    return is_rule and "=" not in head and "#" not in head and "test" in head.split()


def _scripts(place: _Place) -> Iterator[FoundTests]:
    for name in _SCRIPTS:
        file = place.directory / name
        if name.split("/")[0] in place.names and os.access(file, os.X_OK) and file.is_file():
            yield FoundTests(f"./{name}", name)


def _node(place: _Place) -> Iterator[FoundTests]:
    if "package.json" not in place.names:
        return
    package = read_json(place.directory, "package.json")
    script = within(package, "scripts", "test")
    if not isinstance(script, str) or not script.strip() or _NO_TESTS.search(script):
        return
    fault = "its script watches for changes and does not end" if _WATCHES.search(script) else ""
    yield FoundTests(_NODE_TESTS[_node_manager(place, package)], "package.json, scripts.test", fault)


def _node_manager(place: _Place, package: Mapping[str, object]) -> str:
    """What ``packageManager`` says (``pnpm@9.1.0``), else the lock file, else npm."""
    said = str(package.get("packageManager", "")).split("@")[0]
    locks = (manager for lock, manager in _NODE_LOCKS if lock in place.names)
    return said if said in _NODE_TESTS else next(locks, "npm")


def _deno(place: _Place) -> Iterator[FoundTests]:
    name = next((name for name in ("deno.json", "deno.jsonc") if name in place.names), None)
    if name:
        has_task = within(read_json(place.directory, name), "tasks", "test") is not None
        yield FoundTests("deno task test" if has_task else "deno test", name)


def _python(place: _Place) -> Iterator[FoundTests]:
    pyproject = read_toml(place.directory, "pyproject.toml") if "pyproject.toml" in place.names else {}
    if source := _pytest_source(place, pyproject):
        yield FoundTests(_pytest(place), source)
    if "[testenv" in _of(place, "tox.ini") or within(pyproject, "tool", "tox"):
        yield FoundTests("tox", "tox.ini" if "tox.ini" in place.names else "pyproject.toml, tool.tox")
    if "noxfile.py" in place.names:
        yield FoundTests("nox", "noxfile.py")
    if "manage.py" in place.names and "django" in _of(place, "manage.py"):
        yield FoundTests("python3 manage.py test", "manage.py")


def _of(place: _Place, name: str) -> str:
    return (read(place.directory, name) or "") if name in place.names else ""


def _pytest_source(place: _Place, pyproject: Mapping[str, object]) -> str:
    """Where it says that the tests are pytest's; empty where nothing does."""
    if within(pyproject, "tool", "pytest") is not None:
        return "pyproject.toml, tool.pytest"
    for name in ("pytest.ini", "conftest.py"):
        if name in place.names:
            return name
    for name, mark in (("setup.cfg", "[tool:pytest]"), ("tox.ini", "[pytest]")):
        if mark in _of(place, name):
            return name
    tests = next((name for name in ("tests", "test") if name in place.names), None)
    inside = names_in(place.directory / tests) if tests else frozenset()
    if "conftest.py" in inside:
        return f"{tests}/conftest.py"
    has_tests = any(name.startswith("test_") and name.endswith(".py") for name in inside | place.names)
    wanting = ("pyproject.toml", "requirements-dev.txt", "requirements.txt", "setup.py", "Pipfile")
    named = (name for name in wanting if has_tests and "pytest" in _of(place, name))
    return next(named, "")


def _pytest(place: _Place) -> str:
    for lock, command in _PYTHON_RUNNERS:
        if lock in place.names:
            return command
    for venv in (".venv", "venv"):
        if venv in place.names and os.access(place.directory / venv / "bin" / "python", os.X_OK):
            return f"{venv}/bin/python -m pytest"
    return "python3 -m pytest"


def _ruby(place: _Place) -> Iterator[FoundTests]:
    bundle = "bundle exec " if "Gemfile" in place.names else ""
    if ".rspec" in place.names or (bundle and "spec" in place.names):
        yield FoundTests(f"{bundle}rspec", ".rspec" if ".rspec" in place.names else "Gemfile, spec/")
    if os.access(place.directory / "bin" / "rails", os.X_OK) and "test" in place.names:
        yield FoundTests("bin/rails test", "bin/rails")
    if "TestTask" in _of(place, "Rakefile"):
        yield FoundTests(f"{bundle}rake test", "Rakefile")


def _jvm(place: _Place) -> Iterator[FoundTests]:
    gradle = next((name for name in ("build.gradle", "build.gradle.kts") if name in place.names), None)
    if gradle:
        yield FoundTests("./gradlew test" if "gradlew" in place.names else "gradle test", gradle)
    if "pom.xml" in place.names:
        yield FoundTests("./mvnw -q test" if "mvnw" in place.names else "mvn -q test", "pom.xml")


def _php(place: _Place) -> Iterator[FoundTests]:
    if within(read_json(place.directory, "composer.json"), "scripts", "test"):
        yield FoundTests("composer test", "composer.json, scripts.test")


def _dotnet(place: _Place) -> Iterator[FoundTests]:
    for name in sorted(place.names):
        if name.endswith((".sln", ".slnx", ".csproj", ".fsproj")):
            yield FoundTests("dotnet test", name)
            return


def _by_file(place: _Place) -> Iterator[FoundTests]:
    for name, command in _BY_FILE:
        if name in place.names:
            yield FoundTests(command, name)
