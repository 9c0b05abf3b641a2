"""Manifest, digest and archive of a bundle."""

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_policy.bundle import MAX_ARCHIVE
from rss_policy.errors import BundleRefused
from rss_policy.loader import PRELUDE, load_archive, load_bundle, load_files
from rss_policy.manifest import Limits, read_manifest
from tests.fakes.scripts import bundle_of

MAIN = "async def run(context):\n    return {}\n"
HEAD = 'name = "a"\nversion = "1"\nentry = "agent.main"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name = ", "not TOML"),
        ('name = "a"\nversion = "1"\n', "missing required field `entry`"),
        (HEAD + "entri = 3\n", "there is no key entri; did you mean entry?"),
        (HEAD + "zzz = 3\n", "there is no key zzz; known are name, version, entry"),
        (HEAD + "[limits]\nstep_second = 3\n", "there is no key limits.step_second; did you mean limits.step_seconds?"),
        (HEAD + '[limits]\nstep_seconds = "x"\n', "limits.step_seconds"),
        (HEAD + "[limits]\nmemory_mb = 0\n", "limits.memory_mb must be above zero"),
        (HEAD + "tools = 3\n", "tools"),
        ('name = "a"\nversion = "1"\nentry = "Agent"\n', "'Agent' is not a module's name"),
    ],
)
def test_a_manifest_is_read_strictly(text: str, sentence: str) -> None:
    with pytest.raises(BundleRefused) as refused:
        read_manifest(text)
    assert sentence in str(refused.value)
    assert refused.value.place == "policy.toml"


def test_a_manifest_can_only_narrow_limits() -> None:
    limits = Limits().narrowed(read_manifest(HEAD + "[limits]\nmemory_mb = 640\nstep_seconds = 1.5\n").limits)
    assert (limits.memory_mb, limits.step_seconds, limits.host_calls) == (64, 1.5, Limits().host_calls)


def test_limits_that_end_a_script_are_wider_in_a_replay() -> None:
    wide = Limits().wider(10)
    factors = {name: getattr(wide, name) / getattr(Limits(), name) for name in Limits.__struct_fields__}
    assert {name for name, factor in factors.items() if factor == 1} == {"recursion", "outcome_bytes"}
    assert set(factors.values()) == {1, 10}


@pytest.mark.parametrize(
    ("listed", "sentence"),
    [('["agent.main", "llm.x"]', "module llm.x is listed but not there"), ("[]", "module agent.main is there but")],
)
def test_a_list_of_modules_must_be_exact(listed: str, sentence: str) -> None:
    with pytest.raises(BundleRefused, match=sentence):
        bundle_of({"agent.main": MAIN}, manifest=f"modules = {listed}\n")


def test_the_digest_is_the_same_whatever_the_order_of_files_and_changes_with_each_text() -> None:
    files = {"policy.toml": HEAD, "agent/main.rss.py": MAIN, "agent/b.rss.py": "B = 1\n"}
    digests = {
        load_files(files).digest,
        load_files(dict(reversed(files.items()))).digest,
    }
    assert len(digests) == 1
    digests |= {load_files({**files, path: text + "\n"}).digest for path, text in files.items()}
    digests.add(load_files(files, PRELUDE + "\n").digest)
    assert len(digests) == 5


def test_an_archive_gives_the_same_bundle_and_the_same_bytes() -> None:
    bundle = bundle_of({"agent.main": MAIN, "llm.a": "A = 'é'\n"})
    assert load_archive(bundle.archive) == bundle
    assert bundle_of({"llm.a": "A = 'é'\n", "agent.main": MAIN}).archive == bundle.archive


def test_an_archive_keeps_the_prelude_that_it_was_packed_with() -> None:
    old = load_files({"policy.toml": HEAD, "agent/main.rss.py": MAIN}, PRELUDE + "\n# an older one\n")
    assert load_archive(old.archive).prelude.endswith("# an older one\n")


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(BundleRefused):
        load_archive(data)


@pytest.mark.parametrize(
    "data",
    [
        zlib.compress(b"[]"),
        zlib.compress(json.dumps({"files": {}, "prelude": ""}).encode()),
        zlib.compress(b"x" * (MAX_ARCHIVE + 1)),
    ],
)
def test_well_packed_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(BundleRefused):
        load_archive(data)


def test_a_cut_archive_is_refused() -> None:
    whole = bundle_of({"agent.main": MAIN}).archive
    with pytest.raises(BundleRefused, match="cut short"):
        load_archive(whole[:-5])


def test_a_folder_is_loaded_by_its_modules_names(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "policy.toml").write_text(HEAD)
    (tmp_path / "agent" / "main.rss.py").write_text(MAIN)
    (tmp_path / "agent" / "notes.py").write_text("this is not a module of the policy")
    bundle = load_bundle(tmp_path)
    assert [module.name for module in bundle.modules] == ["agent.main"]
    assert bundle == load_archive(bundle.archive)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleRefused, match=r"has no policy.toml"):
        load_bundle(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(HEAD)
    (tmp_path / "main.rss.py").write_bytes(b"\xff\xfe")
    with pytest.raises(BundleRefused, match=r"main.rss.py cannot be read"):
        load_bundle(tmp_path)
