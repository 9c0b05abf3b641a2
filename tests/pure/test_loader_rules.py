"""What the loader refuses, and the place and the sentence that it gives."""

import pytest

from rss_policy.errors import BundleRefused
from tests.fakes.scripts import bundle_of

MAIN = "async def run(context):\n    return {}\n"

REFUSED = {
    "a builtin's name": ("\ndef max(a):\n    return a\n", 2, "builtin's name"),
    "a builtin's name assigned": ("\nlist = []\n", 2, "builtin's name"),
    "a host function's name": ("\ndef emit(a):\n    return a\n", 2, "name of the host's"),
    "a name of the prelude's own imports": ("\nraw = 1\n", 2, "name of the host's"),
    "a name twice in one module": ("\nA = 1\nA = 2\n", 3, "defined twice"),
    "a function twice in one module": ("\ndef f():\n    pass\n\ndef f():\n    pass\n", 5, "defined twice"),
    "a name of another module": ("\nhelp_me = 3\n", 2, "is defined in agent.help already"),
    "a loop variable of another module": ("\nfor help_me in []:\n    pass\n", 2, "is defined in agent.help already"),
    "an undefined global": ("\ndef f():\n    return undefined_one\n", 3, "undefined_one is not defined"),
    "an undefined global with a near name": ("\ndef f():\n    return lenn([])\n", 3, "did you mean len?"),
    "a name of another module, not imported": (
        "\ndef f():\n    return help_me()\n",
        3,
        "write: from agent.help import help_me",
    ),
    "a host function, not imported": ("\ndef f():\n    emit({})\n", 3, "write: from host import emit"),
    "a library, not imported": ("\ndef f():\n    return json.dumps(1)\n", 3, "write: import json"),
    "the raw host calls": ("\ndef f():\n    return raw.context()\n", 3, "raw is not defined"),
    "a name that is local elsewhere": ("\ndef f():\n    x = 1\n\ndef g():\n    return x\n", 6, "x is not defined"),
    "a comprehension's variable outside": ("\ndef f():\n    y = [x for x in [1]]\n    return x\n", 4, "x is not defined"),
    "a lambda's argument outside": ("\nF = lambda x: x\nY = x\n", 3, "x is not defined"),
    "a class's own name from its method": (
        "\nclass A:\n    b = 1\n    def __repr__(self):\n        return b\n",
        5,
        "b is not defined",
    ),
    "eval": ("\ndef f():\n    return eval('1')\n", 3, "eval is not in the dialect"),
    "exec": ("\ndef f():\n    exec('1')\n", 3, "exec is not in the dialect"),
    "id": ("\ndef f():\n    return id(f)\n", 3, "id is not in the dialect"),
    "hash": ("\ndef f():\n    return hash(1)\n", 3, "hash is not in the dialect"),
    "hash under another name": ("\nH = hash\n", 2, "hash is not in the dialect"),
    "BaseException": ("\ndef f():\n    try:\n        pass\n    except BaseException:\n        pass\n", 5, "catch Exception"),
    "BaseException among others": (
        "\ndef f():\n    try:\n        pass\n    except (ValueError, BaseException):\n        pass\n",
        5,
        "catch",
    ),
    "open": ("\ndef f():\n    return open('x')\n", 3, "a script has no files"),
    "print": ("\ndef f():\n    print(1)\n", 3, "emit a note"),
    "a bare except": ("\ndef f():\n    try:\n        pass\n    except:\n        pass\n", 5, "bare except"),
    "return in finally": ("\ndef f():\n    try:\n        pass\n    finally:\n        return 1\n", 3, "in finally"),
    "return deep in finally": (
        "\ndef f():\n    try:\n        pass\n    finally:\n        if f:\n            return 1\n",
        3,
        "in finally",
    ),
    "break in finally": ("\nfor i in []:\n    try:\n        pass\n    finally:\n        break\n", 3, "in finally"),
    "an import of anything else": ("\nimport os\n", 2, "os cannot be imported"),
    "a clock": ("\nimport time\n", 2, "time cannot be imported"),
    "randomness": ("\nimport random\n", 2, "random cannot be imported"),
    "a module that is not there": ("\nfrom agent.nowhere import x\n", 2, "there is no module agent.nowhere"),
    "a name that the module lacks": ("\nfrom agent.help import help_you\n", 2, "did you mean help_me?"),
    "a name that the host lacks": ("\nfrom host import emitt\n", 2, "did you mean emit?"),
    "a name that is only imported there": ("\nfrom agent.help import floor\n", 2, "agent.help does not define floor"),
    "another name for an import": ("\nfrom agent.help import help_me as h\n", 2, "one namespace"),
    "another name for a library": ("\nimport json as j\n", 2, "one namespace"),
    "a star": ("\nfrom agent.help import *\n", 2, "one by one"),
    "a relative import": ("\nfrom . import help\n", 2, "relative"),
    "an import in a function": ("\ndef f():\n    import json\n", 3, "at the top"),
    "an import under if": ("\nif True:\n    import json\n", 3, "at the top"),
    "another statement after an import": ("\nfrom host import emit; X = 1\n", 2, "line of its own"),
    "a library's name with another meaning": ("\nfrom math import floor\nfrom re import floor\n", 3, "defined twice"),
    "asyncio.sleep": ("\nimport asyncio\n\nasync def f():\n    await asyncio.sleep(1)\n", 5, "host has sleep"),
    "asyncio.run by from": ("\nfrom asyncio import run\n", 2, "asyncio.run is not"),
    "yield": ("\ndef f():\n    yield 1\n", 3, "no yield"),
    "yield from": ("\ndef f():\n    yield from []\n", 3, "no yield"),
    "inheritance": ("\nclass E(Exception):\n    pass\n", 2, "inheritance"),
    "a metaclass": ("\nclass E(metaclass=type):\n    pass\n", 2, "inheritance"),
    "property": ("\nclass E:\n    @property\n    def __repr__(self):\n        return 1\n", 3, "method decorators"),
    "del": ("\ndef f():\n    x = 1\n    del x\n", 4, "no del"),
    "async for": ("\nasync def f(x):\n    async for y in x:\n        pass\n", 3, "no async for"),
    "async with": ("\nasync def f(x):\n    async with x:\n        pass\n", 3, "no async with"),
    "an async comprehension": ("\nasync def f(x):\n    return [y async for y in x]\n", 3, "no async compr"),
    "exception groups": ("\ntry:\n    pass\nexcept* ValueError:\n    pass\n", 2, "no exception groups"),
    "dunder attributes": ("\ndef f(x):\n    return x.__class__\n", 3, "__class__"),
    "a class that is printed with its address": ("\nclass A:\n    x = 1\n", 2, "define __repr__"),
    "what is printed with its address": ("\ndef f(x):\n    return iter(x)\n", 3, "differs after parking"),
    "global for an import": ("\nfrom host import emit\n\ndef f():\n    global emit\n    emit = str\n", 6, "defined twice"),
    "global for a function": ("\ndef f():\n    global g\n    g = 1\n\ndef g():\n    pass\n", 4, "defined twice"),
    "a function by global": (
        "\nfrom agent.help import help_me\n\ndef f():\n    global help_me\n    help_me = 1\n",
        6,
        "twice",
    ),
    "slots": ("\nfrom dataclasses import dataclass\n\n@dataclass(slots=True)\nclass A:\n    x: int\n", 4, "no slots"),
    "a host function passed by name": ("\nfrom host import emit\n\ndef f():\n    return [emit]\n", 5, "do not pass it on"),
    "a host function under another name": ("\nfrom host import emit\nE = emit\n", 3, "do not pass it on"),
    "a host call while loading": ("\nfrom host import now\nT = now()\n", 3, "while the module loads"),
    "a host call in a default": ("\nfrom host import now\n\ndef f(x=now()):\n    return x\n", 4, "while the module loads"),
    "a host call in an f-string": ("\nfrom host import now\n\ndef f():\n    return f'{now()}'\n", 5, "f-string"),
    "a place of one's own": ("\nfrom host import now\n\ndef f():\n    return now(_at='x')\n", 5, "leave it out"),
    "a generator for a host call": ("\nfrom host import emit\n\ndef f():\n    emit(x for x in [])\n", 5, "make a list"),
    "no Python": ("\ndef f(:\n", 2, "invalid syntax"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_outside_the_dialect_is_refused_with_its_place(what: str) -> None:
    text, line, sentence = REFUSED[what]
    others = {"agent.main": MAIN, "agent.help": "from math import floor\n\ndef help_me():\n    return floor(1.5)\n"}
    with pytest.raises(BundleRefused) as refused:
        bundle_of({"agent.under_test": text, **others})
    assert refused.value.place == f"agent.under_test:{line}"
    assert sentence in str(refused.value)


ALLOWED = {
    "local names": "from host import emit\n\ndef f(id, input):\n    read = [id, input]\n    return read\n",
    "a library twice": "import json\nfrom math import floor\n\ndef f():\n    return json.dumps(floor(1.5))\n",
    "names by global": "COUNT = 0\n\ndef f():\n    global COUNT\n    COUNT = COUNT + 1\n",
    "closures": "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n        return n\n    return g()\n",
    "a walrus in a comprehension": "def f(items):\n    return [y for x in items if (y := x)], y\n",
    "nested comprehensions": "def f(rows):\n    return {k: [c for c in v if c] for k, v in rows}\n",
    "match": (
        "def f(x):\n    match x:\n        case {'a': a, **rest}:\n            return a, rest\n"
        "        case [first, *more]:\n            return first, more\n        case other:\n"
        "            return other\n"
    ),
    "except as": (
        "def f():\n    try:\n        return 1\n    except (ValueError, KeyError) as fault:\n        return str(fault)\n"
    ),
    "a loop in finally with its own break": (
        "def f():\n    try:\n        pass\n    finally:\n        for i in [1]:\n            break\n"
    ),
    "a dataclass": (
        "from dataclasses import dataclass, field\n\n@dataclass(frozen=True)\nclass A:\n"
        "    x: int = 0\n    y: list[int] = field(default_factory=list)\n"
    ),
    "recursion between functions": "def f(n):\n    return g(n)\n\ndef g(n):\n    return f(n - 1) if n else 0\n",
    "gather": "import asyncio\n\nasync def f(xs):\n    return await asyncio.gather(*xs)\n",
    "a nested host call": "from host import now\n\ndef f():\n    return (lambda: [now() for _ in range(2)])()\n",
    "a class that uses its names inside its body": (
        "class A:\n    b = 1\n    c = b + 1\n    def __repr__(self):\n        return 'A'\n"
    ),
    "a decorator": "def twice(f):\n    return lambda x: f(f(x))\n\n@twice\ndef add(x):\n    return x + 1\n",
    "annotations in text": "def f(x: 'list[int]') -> 'str':\n    return str(x)\n",
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_the_dialect_has_is_let_through(what: str) -> None:
    others = {
        "agent.main": MAIN,
        "agent.help": "import json\nfrom math import floor\n\ndef help_me():\n    return json.dumps(floor(1.5))\n",
    }
    assert len(bundle_of({"agent.under_test": ALLOWED[what], **others}).modules) == 3


@pytest.mark.parametrize(
    "text", ["+".join(["1"] * 20_000), "-" * 3_000 + "1", "x" + ".a" * 3_000, "(" * 5_000 + ")" * 5_000]
)
def test_what_nests_too_deeply_is_refused_not_a_fault_of_the_loader(text: str) -> None:
    with pytest.raises(BundleRefused, match=r"agent.under_test.*(too deeply|too many)"):
        bundle_of({"agent.under_test": f"def f(x):\n    return {text}\n", "agent.main": MAIN})


def test_modules_are_fed_in_dependency_order() -> None:
    bundle = bundle_of(
        {
            "agent.main": "from llm.b import b\n\nasync def run(context):\n    return b()\n",
            "llm.a": "def a():\n    return 1\n",
            "llm.b": "from llm.a import a\n\ndef b():\n    return a()\n",
        }
    )
    assert [module.name for module in bundle.modules] == ["llm.a", "llm.b", "agent.main"]


def test_a_cycle_is_refused_and_shown() -> None:
    with pytest.raises(
        BundleRefused, match=r"llm.a:1: the imports form a cycle: llm.b -> llm.a -> llm.b|agent.main -> llm.a"
    ):
        bundle_of(
            {
                "agent.main": "from llm.a import a\n" + MAIN,
                "llm.a": "from llm.b import b\na = 1\n",
                "llm.b": "from llm.a import a\nb = 1\n",
            }
        )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def run(context):\n    return {}\n", "agent.main:1: the entry module must define async def run"),
        ("X = 1\n", "agent.main:1: the entry module must define async def run"),
        ("async def run():\n    return {}\n", "agent.main:1: run takes exactly one argument"),
        ("async def run(context, *more):\n    return {}\n", "agent.main:1: run takes exactly one argument"),
    ],
)
def test_the_entry_must_be_an_async_run_with_one_argument(text: str, sentence: str) -> None:
    with pytest.raises(BundleRefused, match=sentence):
        bundle_of({"agent.main": text})


def test_a_missing_entry_module_is_refused_with_a_near_name() -> None:
    with pytest.raises(BundleRefused, match=r"agent.mian is not in this bundle; did you mean agent.main\?"):
        bundle_of({"agent.main": MAIN}, entry="agent.mian")


@pytest.mark.parametrize("name", ["host", "json", "raw"])
def test_a_module_may_not_hide_the_host_or_the_library(name: str) -> None:
    with pytest.raises(BundleRefused, match="taken by the host"):
        bundle_of({"agent.main": MAIN, name: "X = 1\n"})


def test_a_module_needs_a_plain_name() -> None:
    with pytest.raises(BundleRefused, match="no module's name"):
        bundle_of({"agent.main": MAIN, "agent.No-Name": "X = 1\n"})
