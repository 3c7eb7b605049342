"""The rules for English in comments, error texts and pages that a program can check. tidy.py applies them.

A retired word is one that docs/glossary.md replaced by the standard term of the field.
"""

import dataclasses
import io
import re
import tokenize

LINE_COLUMNS_MAX = 120
RULES = ("long line", "retired word", "opening", "is no")

# What docs/glossary.md says instead. A regular expression of whole words, and the remedy.
RETIRED = {
    r"tell|tells|telling|told": "notify, report, return or show",
    r"bye|byes": "fin",
    r"breach|breaches|breached": "protocol violation",
    r"bury|buries|buried|burying": "drain",
    r"forgive|forgives|forgave|forgiven|forgiving": "reset",
    r"lobby|lobbies": "pending call queue",
    r"bystander|bystanders": "background client",
    r"spoken for": "reserved or in use",
    r"mend|mends|mended|mending": "fix or repair",
    r"lend|lends|lent|lending": "loan",
    r"scrap|scraps|scrapped": "discard buffer",
    r"chore|chores": "CPU task",
    r"unplace|unplaced|unplaces": "revoke the receive buffer",
    r"a way led|hold still|makes no sense": "name the thing and the state",
}
RETIRED_WORD = re.compile("|".join(rf"(?P<w{i}>\b(?:{words})\b)" for i, words in enumerate(RETIRED)), re.IGNORECASE)
REMEDIES = list(RETIRED.values())

IS_NO = re.compile(r"(?<=[\w,)] )(?<!\bthere )(?:is|are|was|were) no (?!longer\b|more\b|one\b)", re.IGNORECASE)
OPENING = re.compile(r"(What|Of|That|Those|Where)\b")

CPP = re.compile(r"""//[^\n]* | /\*.*?\*/ | R"(?P<d>[^(\s]*)\(.*?\)(?P=d)" | "(?:\\.|[^"\\\n])*" | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""",
                 re.VERBOSE | re.DOTALL)
CODE_IN_TEXT = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"|https?://\S+|\]\([^)]*\)")
HASH_COMMENT = re.compile(r"(?:^|(?<=\s))#(?!!)(.*)$")


@dataclasses.dataclass(frozen=True)
class Fault:
    line: int
    rule: str
    problem: str
    remedy: str


@dataclasses.dataclass(frozen=True)
class Text:
    """One line of English. `opens`: a comment begins with it."""
    line: int
    words: str
    opens: bool = False


def texts_of_cpp(path, text):
    """Comments, and in code that users meet the string literals: they are error texts and help."""
    with_strings = not path.endswith(("_test.cpp", "_testing.h")) and not path.startswith(("tests/", "fuzz/"))
    last = -1  # The line of the comment before, if nothing stands between it and this one.
    line, position = 1, 0
    for match in CPP.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        token = match.group()
        if token.startswith("//"):
            alone = not text[text.rfind("\n", 0, position) + 1:position].strip()
            yield Text(line, token.lstrip("/").strip(), not alone or last != line - 1)
            last = line if alone else -1
        elif token.startswith("/*"):
            for number, part in enumerate(token[2:-2].split("\n")):
                yield Text(line + number, part.strip(" *"), number == 0)
        elif with_strings and token.startswith(("\"", "R\"")) and not text[:position].endswith("#include "):
            yield Text(line, token)


def texts_of_python(text):
    last = -1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            line = token.start[0]
            if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
                yield Text(line, token.string.lstrip("#").strip(), last != line - 1)
                last = line
            elif token.type == tokenize.STRING and token.string.startswith('"""'):
                for number, part in enumerate(token.string.strip('"').split("\n")):
                    yield Text(line + number, part.strip(), number == 0)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def texts_with_hashes(text):
    last = -1
    for line, content in enumerate(text.split("\n"), 1):
        if comment := HASH_COMMENT.search(content):
            alone = not content[:comment.start()].strip()
            yield Text(line, comment.group(1).strip(), not alone or last != line - 1)
            last = line if alone else -1


def texts_of_page(text):
    """Prose outside code. The table of a glossary's old names is what retires them."""
    in_code = in_transition = False
    for line, content in enumerate(text.split("\n"), 1):
        if content.startswith("```"):
            in_code = not in_code
        elif content.startswith("#"):
            in_transition = "transition" in content
        elif not in_code and not in_transition:
            yield Text(line, content)


def texts_of(path, text):
    if path.endswith((".h", ".cpp")):
        return texts_of_cpp(path, text)
    if path.endswith(".py"):
        return texts_of_python(text)
    if path.endswith(".md"):
        return texts_of_page(text)
    if path.endswith((".txt", ".cmake", ".sh", ".yml", "Makefile")):
        return texts_with_hashes(text)
    return ()


def faults(path, text):
    if path.endswith(("tools/prose.py", "tools/tidy_test.py")):
        return  # They name what they look for.
    lines = text.split("\n")
    long_lines = set()
    for piece in texts_of(path, text):
        if len(lines[piece.line - 1]) > LINE_COLUMNS_MAX and not path.endswith(".md") and piece.line not in long_lines:
            long_lines.add(piece.line)
            yield Fault(piece.line, "long line", f"{len(lines[piece.line - 1])} columns, more than {LINE_COLUMNS_MAX}",
                        "wrap the comment")
        words = CODE_IN_TEXT.sub(" ", piece.words) if not piece.words.startswith(("\"", "R\"")) else piece.words
        for found in RETIRED_WORD.finditer(words):
            yield Fault(piece.line, "retired word", f"'{found.group()}' is retired",
                        f"use a term of docs/glossary.md: {REMEDIES[int(found.lastgroup[1:])]}")
        for found in IS_NO.finditer(words):
            yield Fault(piece.line, "is no", f"'{found.group().strip()}' is not plain English", "write 'is not a', or 'are not'")
        if piece.opens and (opening := OPENING.match(piece.words)):
            yield Fault(piece.line, "opening", f"a comment begins with '{opening.group()}'",
                        "write a sentence: subject, verb, object")
