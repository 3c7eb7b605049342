"""Help, manual pages and completion of each program: reference_test.py CASE PROGRAM..."""

import itertools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Newer versions of CMake pass an empty argument for a program that is not built.
programs = [program for program in sys.argv[2:] if program]


def name_of(program):
    return os.path.basename(program)


def run(program, *arguments, status=0):
    result = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=300)
    assert result.returncode == status, (program, arguments, result)
    assert status == 0 or result.stderr, (program, arguments, result)
    return result.stdout


def need(tool):
    if shutil.which(tool) is None:
        print(f"{tool} is not installed")
        sys.exit(77)


def commands(program):
    """The commands of a program and theirs, as lists of words."""
    found = [[]]
    for path in found:
        text = run(program, "help", *path)
        listed = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE | re.IGNORECASE)
        if listed:
            found += [path + [word] for word in re.findall(r"^  (\S+)", listed.group(1), re.MULTILINE)]
    return found


def options(program, path):
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", options_part(run(program, "help", *path)))))


def options_part(text):
    """The names of the options: the first column, in the forms of CLI11 2.3 and of 2.6."""
    part = re.split("^(?:Options|Subcommands):$", text, flags=re.MULTILINE | re.IGNORECASE)[1]
    name = r"--?[a-z][a-z0-9-]*"
    return "\n".join(re.findall(rf"^ {{2,10}}({name}(?:, *{name})*)", part, re.MULTILINE))


def help():
    for program in programs:
        known = commands(program)
        assert ["help"] in known and len(known) > 4, known
        for path in known:
            assert "--help" in options(program, path), path
        assert "--completion" in options(program, ["help"])
        run(program, "help", "dance", status=2)
        run(program, "help", "--completion", "tcsh", status=2)
        run(program, "help", "--install", "/dev/null", status=1)


def manual():
    for program in programs:
        for path in commands(program):
            page = run(program, "help", "--man", *path)
            title = "-".join([name_of(program), *path]).upper()
            assert page.startswith(f".TH {title} 1 "), page
            for option in options(program, path):
                assert option.replace("-", "\\-") in page, (path, option)
            for word in page.splitlines():
                assert not word.startswith("'"), (path, word)
            if shutil.which("groff"):
                checked = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=page, capture_output=True,
                                         text=True, timeout=300)
                assert checked.returncode == 0 and not checked.stderr, (path, checked.stderr)


def offers(program, offer):
    """Checks a completion: offer(words) returns those that follow."""
    top = offer([""])
    for path in commands(program):
        if len(path) == 1:
            assert path[0] in top, (path, top)
        offered = offer([*path, "--"])
        missing = [one for one in options(program, path) if one not in offered]
        assert not missing, (path, missing, offered)
    assert sorted(offer(["help", "--completion", ""]))[:3] == ["bash", "fish", "zsh"]
    assert offer(["hel"]) == ["help"]


def bash():
    need("bash")
    for program in programs:
        script = run(program, "help", "--completion", "bash")
        function = "_" + name_of(program).replace("-", "_")

        def offer(words):
            line = f"{script}\nCOMP_WORDS=(x \"$@\"); COMP_CWORD=$#; {function}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
            result = subprocess.run(["bash", "-c", line, "bash", *words], capture_output=True, text=True, timeout=300)
            assert result.returncode == 0 and not result.stderr, result
            return result.stdout.split()
        offers(program, offer)


def zsh():
    need("zsh")
    for program in programs:
        script = run(program, "help", "--completion", "zsh")
        function = "_" + name_of(program).replace("-", "_") + "_complete"

        def offer(words):
            # zsh itself compares the words with the beginning.
            line = ("compdef() {}; _files() {}\n"
                    "compadd() { shift; for one; do [[ $one == ${words[CURRENT]}* ]] && print -r -- $one; done; true }\n"
                    f"{script}\nwords=(x \"$@\"); CURRENT=$(($# + 1)); {function}")
            result = subprocess.run(["zsh", "-f", "-c", line, "zsh", *words], capture_output=True, text=True, timeout=300)
            assert result.returncode == 0 and not result.stderr, result
            return result.stdout.split()
        offers(program, offer)


def fish():
    need("fish")
    with tempfile.TemporaryDirectory() as home:
        environment = dict(os.environ, HOME=home, XDG_CONFIG_HOME=home, XDG_DATA_HOME=home)
        for program in programs:
            script = run(program, "help", "--completion", "fish")

            def offer(words):
                line = " ".join([name_of(program), *words])
                result = subprocess.run(["fish", "--no-config", "-c", f"{script}\ncomplete -C '{line}'"],
                                        capture_output=True, text=True, timeout=300, env=environment)
                assert result.returncode == 0 and not result.stderr, result
                return [one.split("\t")[0] for one in result.stdout.splitlines()]
            offers(program, offer)


def installed():
    for program in programs:
        name = name_of(program)
        with tempfile.TemporaryDirectory() as prefix:
            run(program, "help", "--install", prefix)
            for path in commands(program):
                with open(f"{prefix}/share/man/man1/{'-'.join([name, *path])}.1") as page:
                    assert page.read() == run(program, "help", "--man", *path)
            for shell, file in (("bash", f"bash-completion/completions/{name}"), ("zsh", f"zsh/site-functions/_{name}"),
                                ("fish", f"fish/vendor_completions.d/{name}.fish")):
                with open(f"{prefix}/share/{file}") as script:
                    assert script.read() == run(program, "help", "--completion", shell)


def documented(text):
    """Yields (line, program, path, options) of each command line of the programs in the code of a page."""
    names = "|".join(map(re.escape, map(name_of, programs)))
    # It ends with its line, unless that ends with a backslash. A program may also be an argument of another one.
    command_line = re.compile(rf"(?:(?<!\\\n)^|[;&|] *)(?:[\w./-]*/)?({names})((?: +|\\\n)(?:[^|;&#\n\\]|\\\n|\\.)*)",
                              re.MULTILINE)
    for code in re.finditer(r"^```[a-z]*\n(?P<block>.*?)^```|`(?P<span>[^`\n]+)`", text, re.MULTILINE | re.DOTALL):
        for command in command_line.finditer(code.group(code.lastgroup)):
            words = command.group(2).replace("\\\n", " ").split()
            path = list(itertools.takewhile(re.compile(r"[a-z][a-z-]*").fullmatch, words))
            yield (text.count("\n", 0, code.start(code.lastgroup) + command.start()) + 1, command.group(1), path,
                   [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)])


def pages():
    """Each command line in the documentation has options that exist."""
    root = pathlib.Path(__file__).resolve().parents[3]
    known = {name_of(program): {tuple(path): set(options(program, path)) for path in commands(program)}
             for program in programs}
    wrong = []
    checked = 0
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if "decisions" in page.parts:
            continue
        for line, name, path, used in documented(page.read_text(encoding="utf-8")):
            paths = known[name]
            # Words behind the command are arguments, such as the name of a method.
            while tuple(path) not in paths:
                path = path[:-1]
            checked += len(used)
            wrong += [f"{page.relative_to(root)}:{line}: `{' '.join([name, *path])}` has no option {option}"
                      for option in used if option not in paths[tuple(path)]]
    assert not wrong, "\n".join(wrong)
    assert checked >= 10 * len(programs), checked


if __name__ == "__main__":
    {case.__name__: case for case in (help, manual, bash, zsh, fish, installed, pages)}[sys.argv[1]]()
