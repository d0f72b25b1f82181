"""Which changes are made to a module: mutmut's, and conditions turned round.

Not changed: annotations and type aliases, docstrings, and sentences that people read (a string with a space
in it). Words that are compared (``"usage_limit"``) are.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider
from mutmut.mutation.file_mutation import MutationVisitor, OuterFunctionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutants.change import Change, difference

Operator = tuple[type, Callable[[cst.CSTNode], Iterable[cst.CSTNode]]]
TYPE_MAKERS = ("NewType", "TypeVar")


def _word(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Another word in the place of one; mutmut's changes of case say no more than that."""
    if isinstance(node, cst.SimpleString) and not any(map(str.isspace, str(node.evaluated_value))):
        yield from list(operator_string(node))[:1]


def _turned_round(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """``not (test)``, or None where another operator's change comes to the same."""
    if isinstance(test, cst.UnaryOperation):
        return None
    if isinstance(test, cst.Comparison) and isinstance(
        test.comparisons[0].operator, cst.Is | cst.IsNot | cst.In | cst.NotIn | cst.Equal | cst.NotEqual
    ):
        return None
    inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(cst.Not(), inner)


def _condition(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The other way round: what comes after ``if`` and ``while``, and the guard of a case."""
    name = "guard" if isinstance(node, cst.MatchCase) else "test"
    test = getattr(node, name)
    if test is not None and (turned := _turned_round(test)) is not None:
        yield node.with_changes(**{name: turned})


OPERATORS: list[Operator] = [
    *(pair for pair in mutation_operators if pair[1] is not operator_string),
    (cst.SimpleString, _word),
    *((kind, _condition) for kind in (cst.If, cst.While, cst.MatchCase, cst.CompIf)),
]


class _Visitor(MutationVisitor):  # type: ignore[misc]  # mutmut is in an environment of its own
    """mutmut's, but into properties too, and past types."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef) and _is_a_property(node):
            return False
        return _says_a_type(node) or _is_for_types(node) or bool(super()._skip_node_and_children(node))


def _is_a_property(node: cst.FunctionDef) -> bool:
    names = [d.decorator.value for d in node.decorators if isinstance(d.decorator, cst.Name)]
    return names == ["property"]


def _says_a_type(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.AnnAssign):
        annotation = node.annotation.annotation
        return isinstance(annotation, cst.Name) and annotation.value == "TypeAlias"
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
        return isinstance(node.value.func, cst.Name) and node.value.func.value in TYPE_MAKERS
    return False


def _is_for_types(node: cst.CSTNode) -> bool:
    """``if TYPE_CHECKING:``; what it imports is read by nothing that runs."""
    test = node.test if isinstance(node, cst.If) else None
    return isinstance(test, cst.Name) and test.value == "TYPE_CHECKING"


def changes(file: str) -> list[Change]:
    """Every change that is made to ``file``, a path from the root of the project."""
    source = Path(file).read_text(encoding="utf-8")
    wrapper = MetadataWrapper(cst.parse_module(source))
    visitor = _Visitor(OPERATORS, IgnoredCode(set(), set(), set()))
    wrapper.visit(visitor)
    text = _Text(wrapper.module)
    positions = wrapper.resolve(PositionProvider)
    outer = wrapper.resolve(OuterFunctionProvider)
    names = dict(_functions(wrapper.module))
    statements = _statements(source)
    found = []
    for mutation in visitor.mutations:
        node = mutation.original_node
        owner = outer.get(node)
        place = positions.get(node) or _place_of_a_part(node, positions)
        first, last = _ran(statements, place.start.line, place.end.line)
        within = isinstance(owner, cst.FunctionDef) and _is_in_body(owner, node)
        name = names.get(owner, "") if within else ""
        before, after, statement, changed = text.changed(node, mutation.mutated_node)
        found.append(Change(file, name, first, last, before, after, statement, changed))
    return [change for change in found if _compiles(change)]


class _Text:
    """A module's text, piece by piece, so that a change has to be written out in one piece only."""

    def __init__(self, module: cst.Module) -> None:
        self._module = module
        self._pieces = [module.code_for_node(piece) for piece in module.body]
        code = str(module.code)
        self._head = code[: code.index(self._pieces[0])] if self._pieces else code
        self._tail = code[len(self._head) + sum(map(len, self._pieces)) :]
        self._piece_of = {id(part): at for at, piece in enumerate(module.body) for part in _parts(piece)}

    def changed(self, node: cst.CSTNode, instead: cst.CSTNode) -> tuple[str, str, str, str]:
        """The lines that went, the lines that came, the changed statement, and the whole text."""
        at = self._piece_of[id(node)]
        piece = self._module.code_for_node(self._module.body[at].deep_replace(node, instead))
        before, after = difference(self._pieces[at], piece)
        pieces = [*self._pieces[:at], piece, *self._pieces[at + 1 :]]
        return before, after, piece, self._head + "".join(pieces) + self._tail


def _parts(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _parts(child)


def _place_of_a_part(node: cst.CSTNode, positions: Mapping[cst.CSTNode, CodeRange]) -> CodeRange:
    """Of an operator, say, the place of what is in it."""
    return next(positions[part] for part in node.children if part in positions)


def _functions(module: cst.Module) -> Iterator[tuple[cst.FunctionDef, str]]:
    for statement in module.body:
        if isinstance(statement, cst.FunctionDef):
            yield statement, statement.name.value
        elif isinstance(statement, cst.ClassDef):
            for inner in statement.body.body:
                if isinstance(inner, cst.FunctionDef):
                    yield inner, f"{statement.name.value}.{inner.name.value}"


def _is_in_body(function: cst.FunctionDef, node: cst.CSTNode) -> bool:
    return any(part is node for part in _parts(function.body))


def _statements(source: str) -> list[tuple[int, int, int]]:
    """Of each statement: its first and last line, and the last line of its head."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt):
            last = node.end_lineno or node.lineno
            body: list[Any] = getattr(node, "body", None) or getattr(node, "cases", None) or []
            inner = next((getattr(part, "pattern", part) for part in body), None)
            head = last if inner is None else max(node.lineno, inner.lineno - 1)
            found.append((node.lineno, last, head))
    return found


def _ran(statements: list[tuple[int, int, int]], first: int, last: int) -> tuple[int, int]:
    """The lines of the head of the innermost statement around the change."""
    around = [(begin, end, head) for begin, end, head in statements if begin <= first and last <= end]
    begin, _, head = min(around, key=lambda found: found[1] - found[0], default=(first, last, last))
    return begin, head


def _compiles(change: Change) -> bool:
    try:
        compile(change.source, change.file, "exec")
    except SyntaxError:
        return False
    return True
