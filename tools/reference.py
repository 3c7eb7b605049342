#!/usr/bin/env python3
"""Writes a reference page for each public header: its declarations with their comments, without bodies of functions.

reference.py OUTPUT    writes OUTPUT/NAME.md for each include/hawser/NAME.h, and OUTPUT/README.md as their list
"""

import argparse
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "include" / "hawser"
ALL = "hawser.h"  # Includes the others and declares nothing.

# Comments, preprocessor lines, literals, and the characters that structure code.
TOKEN = re.compile(r"""(?P<comment>//[^\n]*) | (?P<line>^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*) |
                       (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+') | (?P<mark>[{};:()<>]) | (?P<space>\s+) |
                       (?P<word>[A-Za-z_]\w*) | (?P<other>.)""", re.VERBOSE | re.MULTILINE)
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:requires.*\s)?(?:class|struct|union|enum(?:\s+class)?)\b(?!.*\()", re.DOTALL)
NAMESPACE = re.compile(r"^(?:inline\s+)?namespace\s+([\w:]*)\s*$")
INTERNAL = re.compile(r"For (?:tests|the library)\b")
NAMED = re.compile(r"\b(?:class|struct|union|enum(?:\s+class)?)\s+(?:\[\[\w+\]\]\s+)?(\w+)")


class Declaration:
    """A declaration with the comment above it; `members` of a type, None for others."""

    def __init__(self, comment, code, members=None):
        self.comment = comment
        self.code = code
        self.members = members


def squeeze(code):
    return re.sub(r"\s+", " ", code).strip()


def without_initialisers(code):
    """Cuts the list of a constructor's initialisers."""
    depth = 0
    for at, char in enumerate(code):
        if char in "(<[":
            depth += 1
        elif char in ")>]":
            depth -= 1
        elif char == ":" and depth == 0 and code[at - 1] != ":" and code[at + 1:at + 2] != ":":
            if ")" in code[:at]:
                return code[:at].rstrip()
    return code


class Parser:
    def __init__(self, text):
        self.tokens = [(match.lastgroup, match.group()) for match in TOKEN.finditer(text)]
        self.at = 0

    def skip_body(self):
        """Skips to behind the brace that closes the one before. Returns the text of the body."""
        depth, begin = 1, self.at
        while self.at < len(self.tokens) and depth:
            depth += {"{": 1, "}": -1}.get(self.tokens[self.at][1], 0)
            self.at += 1
        return "".join(text for _, text in self.tokens[begin:self.at - 1])

    def declarations(self, public=True):
        """Returns the declarations up to the closing brace. Private and protected members are left out."""
        found, comment, code = [], [], ""
        breaks = 0
        while self.at < len(self.tokens):
            kind, text = self.tokens[self.at]
            self.at += 1
            if kind == "comment":
                if not code.strip():
                    if breaks > 1:
                        comment = []
                    comment.append(text[2:].removeprefix(" ").rstrip())
                    breaks = 0
                continue
            if kind == "line":
                comment, code = [], ""
                continue
            if kind == "space":
                if not code.strip():
                    breaks += text.count("\n")
                    if text.count("\n") > 1:
                        comment = []
                code += text
                continue
            if text == "}":
                break
            if text == ":" and code.strip() in ("public", "private", "protected"):
                public = code.strip() == "public"
                comment, code = [], ""
                continue
            if text == ";":
                self.take_trailing_comment(comment)
                self.add(found, public, comment, squeeze(without_initialisers(code)) + ";")
                comment, code, breaks = [], "", 0
                continue
            if text == "{":
                statement = code.strip()
                namespace = NAMESPACE.match(statement)
                if namespace:
                    inner = self.declarations()
                    if "detail" not in namespace[1].split("::"):
                        found += inner
                    comment, code = [], ""
                    continue
                if TYPE.match(squeeze(statement)):
                    if re.search(r"\benum\b", squeeze(statement)):
                        members = self.skip_body()
                    else:
                        members = self.declarations(public=not re.search(r"\bclass\b", squeeze(statement)))
                    self.skip_semicolon()
                    if public:
                        found.append(Declaration(comment, squeeze(statement), members))
                    comment, code = [], ""
                    continue
                initialises = without_initialisers(statement) != statement and re.search(r"[\w>]$", statement)
                if "(" in statement and not statement.endswith("=") and not initialises:
                    self.skip_body()
                    self.add(found, public, comment, squeeze(without_initialisers(statement)) + ";")
                    comment, code = [], ""
                    continue
                code += "{" + self.skip_body() + "}"
                continue
            code += text
        return found

    def skip_semicolon(self):
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "space":
            self.at += 1
        if self.at < len(self.tokens) and self.tokens[self.at][1] == ";":
            self.at += 1

    def take_trailing_comment(self, comment):
        """Takes the comment behind a declaration on its line as its own."""
        ahead = self.at
        if ahead < len(self.tokens) and self.tokens[ahead][0] == "space" and "\n" not in self.tokens[ahead][1]:
            ahead += 1
        if ahead < len(self.tokens) and self.tokens[ahead][0] == "comment":
            comment.append(self.tokens[ahead][1][2:].strip())
            self.at = ahead + 1

    @staticmethod
    def add(found, public, comment, code):
        if not public or code == ";" or code.startswith(("friend ", "using namespace", "static_assert")):
            return
        if re.match(r"(?:class|struct|enum(?: class)?) [\w:]+(?: : \w[\w:]*)?;$", code) or "detail::" in code.split("(")[0]:
            return  # Declared only so that others can name it.
        if code.startswith("~") or code.endswith("= delete;") or INTERNAL.match(" ".join(comment)):
            return
        found.append(Declaration(comment, code))


def prose(comment):
    """Returns a comment as Markdown: indented lines are code."""
    lines, fenced = [], False
    for line in comment:
        code = line.startswith("  ")
        if code != fenced:
            lines.append("```cpp" if code else "```")
            fenced = code
        lines.append(line)
    if fenced:
        lines.append("```")
    return "\n".join(lines)


def with_comment(declaration):
    return "".join(f"// {line}\n" if line else "//\n" for line in declaration.comment) + declaration.code


def write_declaration(declaration, level):
    parts = []
    named = NAMED.search(declaration.code)
    if declaration.members is None:
        parts.append("```cpp\n" + with_comment(declaration) + "\n```\n")
        return parts
    parts.append(f"{'#' * level} {named[1] if named else declaration.code}\n")
    if declaration.comment:
        parts.append(prose(declaration.comment) + "\n")
    if isinstance(declaration.members, str):
        body = "\n".join("  " + line.strip() for line in declaration.members.strip().splitlines())
        parts.append(f"```cpp\n{declaration.code} {{\n{body}\n}};\n```\n")
        return parts
    plain = [member for member in declaration.members if member.members is None]
    nested = [member for member in declaration.members if member.members is not None]
    if plain:
        code = "\n".join(("\n" if at and member.comment else "") + with_comment(member) for at, member in enumerate(plain))
        parts.append(f"```cpp\n{declaration.code}\n\n{code}\n```\n")
    for member in nested:
        parts += write_declaration(member, min(level + 1, 6))
    return parts


def page(name, text):
    text = re.sub(r"^#pragma once\n", "", text)
    parts = [f"# hawser/{name}\n"]
    free = []
    for declaration in Parser(text).declarations():
        if declaration.members is None:
            free += write_declaration(declaration, 2)
        else:
            parts += write_declaration(declaration, 2)
    if free:
        parts += ["## Functions and values\n", *free]
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    headers = sorted(header for header in HEADERS.glob("*.h") if header.name != ALL)
    listed = ["# Reference\n", "One page for each public header, generated from its declarations and comments.\n"]
    for header in headers:
        (output / f"{header.stem}.md").write_text(page(header.name, header.read_text(encoding="utf-8")), encoding="utf-8")
        listed.append(f"- [hawser/{header.name}]({header.stem}.md)")
    (output / "README.md").write_text("\n".join(listed) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
