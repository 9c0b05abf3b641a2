"""What is fed for a module: the same lines, own imports blanked, host calls carrying their place."""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_policy.bundle import Module
from tests.fakes.scripts import bundle_of

MAIN = "async def run(context):\n    return {}\n"
HELP = "def help_me():\n    return 1\n\ndef help_you():\n    return 2\n"


def fed(text: str) -> Module:
    modules = bundle_of({"agent.main": MAIN, "agent.help": HELP, "agent.under_test": text}).modules
    return next(module for module in modules if module.name == "agent.under_test")


@pytest.mark.parametrize(
    ("call", "marked"),
    [
        ("now()", 'now(_at="agent.under_test:4")'),
        ("emit({})", 'emit({}, _at="agent.under_test:4")'),
        ("emit({},)", 'emit({},_at="agent.under_test:4")'),
        ("emit(event={})", 'emit(event={}, _at="agent.under_test:4")'),
        ("emit((({})))", 'emit((({})), _at="agent.under_test:4")'),
        ("emit((({})) , )", 'emit((({})) , _at="agent.under_test:4")'),
        ("emit(*[{}])", 'emit(*[{}], _at="agent.under_test:4")'),
        ("emit(**{'event': {}})", """emit(**{'event': {}}, _at="agent.under_test:4")"""),
        (
            "emit({'é': 'ü', 'n': now()})",
            """emit({'é': 'ü', 'n': now(_at="agent.under_test:4")}, _at="agent.under_test:4")""",
        ),
        ("emit({'a': ','})", """emit({'a': ','}, _at="agent.under_test:4")"""),
    ],
)
def test_each_host_call_carries_its_place(call: str, marked: str) -> None:
    module = fed(f"from host import emit, now\n\ndef f():\n    {call}\n")
    assert module.feed.split("\n")[3] == f"    {marked}"


def test_a_call_over_several_lines_carries_its_first_line() -> None:
    module = fed(
        "from host import emit\n\ndef f():\n    emit(\n"
        "        {},  # a comment, with a comma\n    )\n    emit(\n        {}  # and, here\n"
        "    )\n"
    )
    assert '    _at="agent.under_test:4")' in module.feed
    assert '    , _at="agent.under_test:7")' in module.feed


def test_a_call_of_a_local_name_is_left_alone() -> None:
    module = fed("from host import emit\n\ndef f(emit):\n    emit({})\n")
    assert "_at" not in module.feed


def test_an_import_over_several_lines_leaves_its_lines_empty() -> None:
    module = fed(
        "from agent.help import (\n    help_me,\n    help_you,\n)  # both\n\ndef f():\n    return help_me(), help_you()\n"
    )
    assert module.feed.startswith("pass  # both\n\n\n\n\ndef f():\n")


def test_line_ends_of_other_systems_are_one_line_end() -> None:
    module = fed("from host import now\r\n\r\ndef f():\r\n    return now()\r\n")
    assert module.feed == 'pass\n\ndef f():\n    return now(_at="agent.under_test:4")\n'


values = st.sampled_from(
    [
        "{}",
        "{'a': 1}",
        "'x, y'",
        "[1, 2]",
        "now()",
        "(\n        {}\n        )",
        "{'é': now(),  # a, b\n        }",
        "lambda: now()",
    ]
)
calls = st.builds(
    lambda name, args, comma, gap: f"{name}({gap}{', '.join(args)}{',' if comma and args else ''}{gap})",
    st.sampled_from(["emit", "now", "start", "stop", "local"]),
    st.lists(values, max_size=3),
    st.booleans(),
    st.sampled_from(["", " ", "\n        ", "  # c, d\n        "]),
)
statements = st.lists(st.one_of(calls, st.sampled_from(["# note", "", "x = '''\n)\n'''"])), min_size=1, max_size=6)
heads = st.lists(
    st.sampled_from(
        [
            "import json",
            "# a comment",
            "",
            "from agent.help import (\n    help_me,\n)",
            "from agent.help import \\\n    help_you  # x",
        ]
    ),
    unique=True,
)


def without_places(tree: ast.AST) -> ast.AST:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [word for word in node.keywords if word.arg != "_at"]
    return tree


def shape(tree: ast.AST) -> list[tuple[str, int]]:
    return [(type(node).__name__, node.lineno) for node in ast.walk(tree) if isinstance(node, ast.stmt)]


@given(heads, statements)
def test_rewriting_keeps_every_line_and_every_other_node(head: list[str], body: list[str]) -> None:
    text = "\n".join(
        [
            *head,
            "from host import emit, now, start, stop",
            "def local(*a): pass",
            "def f():",
            *(f"    {s}" for s in body),
            "    pass",
            "",
        ]
    )
    module = fed(text)
    before, after = ast.parse(text), ast.parse(module.feed)
    assert module.feed.count("\n") == text.count("\n")
    assert [line for _, line in shape(before)] == [line for _, line in shape(after)]
    functions = [tree.body[-1] for tree in (before, without_places(after)) if isinstance(tree, ast.Module)]
    assert ast.dump(functions[0]) == ast.dump(functions[1])


@given(statements)
def test_every_host_call_has_exactly_one_place_and_it_is_its_own(body: list[str]) -> None:
    text = "\n".join(
        [
            "from host import emit, now, start, stop",
            "def local(*a): pass",
            "def f():",
            *(f"    {s}" for s in body),
            "    pass",
            "",
        ]
    )
    for node in ast.walk(ast.parse(fed(text).feed)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            places = [
                word.value.value for word in node.keywords if word.arg == "_at" and isinstance(word.value, ast.Constant)
            ]
            assert places == ([] if node.func.id == "local" else [f"agent.under_test:{node.lineno}"])
