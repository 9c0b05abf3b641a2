"""Puts the configuration together: defaults, then the file, then `DEEDBOX_*`, then flags; every value knows its source."""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from gateways.config import Config
from gateways.config_checks import NAME, check
from gateways.config_schema import ANY_NAME, is_leaf, meant, plain, settings, type_of
from gateways.errors import ConfigInvalid

FILE_NAME = "deedbox.toml"
PREFIX, BETWEEN = "DEEDBOX_", "__"
DEFAULT_SOURCE = "default"

WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}

Path_ = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One effective value and where it comes from: `default`, a file's name, a variable's name or a flag."""

    name: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The effective configuration; `sources` maps dotted names to where a value that is not the default comes from."""

    config: Config
    sources: Mapping[str, str]
    file: Path | None

    def source(self, name: str) -> str:
        """Return where the value of a setting comes from."""
        return self.sources.get(name, DEFAULT_SOURCE)

    def entries(self) -> list[Entry]:
        """Return every effective value, in the order of `config.py`; those of providers and profiles only where given."""
        values = msgspec.to_builtins(self.config)
        found = []
        for name, _, _ in settings():
            if ANY_NAME in name:
                table, _, rest = name.partition(f".{ANY_NAME}.")
                names = [f"{table}.{each}.{rest}" for each in values[table]]
                found += [Entry(each, _at(values, each), self.sources[each]) for each in names if each in self.sources]
            else:
                found.append(Entry(name, _at(values, name), self.source(name)))
        return found


@dataclass(slots=True)
class _Gathered:
    shape: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def put(self, path: Path_, value: Any, source: str) -> None:
        table = self.shape
        for name in path[:-1]:
            table = table.setdefault(name, {})
        table[path[-1]] = value
        self.sources[".".join(path)] = source


def load(
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, tuple[str, Any]] | None = None,
) -> Loaded:
    """Return the effective configuration.

    `file` None: `deedbox.toml` in the working directory, if there is one.  `flags`: dotted name to (flag, value).

    Raises:
        ConfigInvalid: a setting is unknown, has the wrong type or cannot work; the message says what to do.
    """
    environ = os.environ if environ is None else environ
    file = file or (Path(FILE_NAME) if Path(FILE_NAME).is_file() else None)
    gathered = _Gathered()
    if file is not None:
        for path, value in _from_tables((), _read(file), str(file)):
            gathered.put(path, value, str(file))
    for variable, path, value in _from_environment(environ):
        gathered.put(path, value, variable)
    for name, (flag, value) in (flags or {}).items():
        gathered.put(tuple(name.split(".")), value, flag)
    config = _convert(gathered)
    loaded = Loaded(config, gathered.sources, file)
    check(config, loaded.source)
    return loaded


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError as exc:
        raise ConfigInvalid(f"the configuration file {file} does not exist: create it, or leave --config out") from exc
    except OSError as exc:
        raise ConfigInvalid(f"the configuration file {file} cannot be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(f"{file} is not UTF-8 text: save it as UTF-8") from exc
    except tomllib.TOMLDecodeError as exc:
        raise ConfigInvalid(f"{file} is not valid TOML: {exc}") from exc


def _from_tables(above: Path_, table: dict[str, Any], source: str) -> Iterator[tuple[Path_, Any]]:
    for name, value in table.items():
        path = (*above, name)
        if not NAME.fullmatch(name):
            raise ConfigInvalid(f"{source}: {name!r} is no name of a setting: use up to 64 letters, digits, _ and -")
        kind = type_of(path)
        if kind is None:
            raise ConfigInvalid(f"{source}: there is no setting {'.'.join(path)}; {meant(path)}")
        if is_leaf(kind) or value == {}:
            yield path, value
        elif isinstance(value, dict):
            yield from _from_tables(path, value, source)
        else:
            raise ConfigInvalid(f"{source}: {'.'.join(path)} is a section, so write [{'.'.join(path)}] above its settings")


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, Path_, Any]]:
    for variable in sorted(each for each in environ if each.startswith(PREFIX)):
        path = tuple(variable.removeprefix(PREFIX).lower().split(BETWEEN))
        if len(path) == 1:
            _refuse_typo(variable)
            continue
        kind = type_of(path)
        if kind is None:
            raise ConfigInvalid(f"{variable}: there is no setting {'.'.join(path)}; {meant(path)}")
        if not is_leaf(kind):
            raise ConfigInvalid(f"{variable} names a section; name a setting in it, such as {_example(path)}")
        yield variable, path, _from_text(variable, environ[variable], kind)


def _refuse_typo(variable: str) -> None:
    # A single underscore between section and name would otherwise be ignored in silence.
    known = [_variable(name) for name, _, _ in settings()]
    flat = {each.replace(BETWEEN, "_"): each for each in known}
    near = difflib.get_close_matches(variable, list(flat), n=1, cutoff=0.9)
    if near:
        raise ConfigInvalid(f"{variable} is not a setting; did you mean {flat[near[0]]} (two underscores)?")


def _from_text(variable: str, text: str, kind: Any) -> Any:
    target = plain(kind)
    if target is str:
        return text
    if get_origin(target) in (tuple, dict):
        return _structure(variable, text, target)
    try:
        return msgspec.convert(text, target, strict=False)
    except msgspec.ValidationError:
        return text  # the conversion of the whole then says what is wrong, as for a value in the file


def _structure(variable: str, text: str, target: Any) -> Any:
    if not text.lstrip().startswith(("[", "{")):
        parts = [each.strip() for each in text.split(",") if each.strip()]
        return [_from_text(variable, each, get_args(target)[0]) for each in parts]
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as exc:
        raise ConfigInvalid(f"{variable} is not valid JSON: {exc}") from exc


def _convert(gathered: _Gathered) -> Config:
    try:
        return msgspec.convert(gathered.shape, Config)
    except msgspec.ValidationError as exc:
        wrong, _, where = str(exc).partition(" - at `")
        found = re.match(r"\$\.?([\w.\-\[\]]*)", where)
        name = _known_name(found.group(1) if found else "", gathered)
        raise ConfigInvalid(f"{gathered.sources.get(name, 'the configuration')}: {name}: {_sentence(wrong, name)}") from exc


def _known_name(name: str, gathered: _Gathered) -> str:
    # msgspec writes `[...]` for the key of a table and `[0]` for an element; the source is kept under the whole setting.
    pattern = re.escape(re.sub(r"\[\d+\]$", "", name)).replace(r"\[\.\.\.\]", r"\.[^.]+")
    fitting = [each for each in gathered.sources if re.fullmatch(pattern, each)]
    return next((each for each in fitting if _fails(each, gathered)), name)


def _fails(name: str, gathered: _Gathered) -> bool:
    try:
        msgspec.convert(_at(gathered.shape, name), type_of(tuple(name.split("."))))
    except msgspec.ValidationError:
        return True
    return False


def _sentence(wrong: str, name: str) -> str:
    kind = plain(type_of(tuple(name.split("."))))
    choices = get_args(kind) if get_origin(kind) is not None and isinstance(get_args(kind)[0], str) else ()
    if choices:
        return f"must be one of {', '.join(choices)}"
    for word, people_say in WORDS.items():
        wrong = wrong.replace(f"`{word}`", people_say)
    return re.sub(r"^Expected (.*?)(, got .*)?$", r"must be \1\2", wrong)


def _variable(name: str) -> str:
    return PREFIX + name.upper().replace(".", BETWEEN)


def _example(path: Path_) -> str:
    return next(_variable(name) for name, _, _ in settings() if name.startswith(f"{path[0]}."))


def _at(values: dict[str, Any], name: str) -> Any:
    found: Any = values
    for part in name.split("."):
        found = found[part]
    return found
