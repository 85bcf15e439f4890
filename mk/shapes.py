"""mk/shapes.py MOESIM FOLDER - writes shapes.py (classes of what the verbs print) and files.py (TypedDicts of what the
loaders read) of the Python package, with types, units and meanings, from the tables that `moesim schema` prints."""

import keyword
import re
import subprocess
import sys
from pathlib import Path

KINDS = ("scenario", "plan", "whatif", "goodput")
OF_JSON = {"number": "float", "bool": "bool", "string": "str", "file": "dict[str, Any]"}
OF_FIELD = {
    "integer": "int | str",  # "8k"
    "number": "float | str",  # "400Gb/s"
    "true|false": "bool",
    "string": "str",
    "word": "str",
    "list of words": "list[str]",
    "object": "dict[str, Any]",
    "any": "Any",
    "see meaning": "Any",
}


def schema(moesim, what):
    command = [moesim, "schema", what, "--markdown"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tables(text):
    """(name, sentence, rows of cells without backquotes) of each section of a page of tables."""
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        name, _, rest = section.partition("\n")
        rows = [line for line in rest.splitlines() if line.startswith("|")][2:]
        cells = [[c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
        yield name, rest.strip().split("\n\n")[0], [[c[0].strip("`"), *c[1:]] for c in cells]


def camel(*words):
    return "".join(w[:1].upper() + w[1:] for word in words for w in re.split(r"\W+|_", word))


def written(name, base, sentence, lines, members):
    text = sentence.replace("\\", "\\\\").replace('"""', "'''")
    doc = f'    """{text}"""'
    if lines:
        doc = "\n".join([f'    """{text}', "", *(f"    {line}" for line in lines), '    """'])
    return f"class {name}({base}):\n{doc}\n\n" + "\n".join(f"    {m}" for m in members or ["pass"]) + "\n"


# --- what comes back ----------------------------------------------------------------------------------------------
class Node:
    def __init__(self):
        self.type, self.doc, self.optional, self.lists, self.below = None, "", False, 0, {}


def tree_of(rows):
    root = Node()
    for path, kind, unit, doc in rows:
        node = root
        for step in [] if path == "." else path.split("."):
            name = step.rstrip("[]")
            node = node.below.setdefault(name, Node())
            node.lists = step.count("[]")
        node.type, node.doc = kind, (f"({unit}) " if unit else "") + doc
        node.optional = doc.startswith("optional")
    return root


class Shapes:
    def __init__(self, sections):
        self.sections, self.out, self.done = sections, [], {}

    def section(self, name):
        if name not in self.done:
            self.done[name] = camel(name)
            sentence, rows = self.sections[name]
            self.write(camel(name), tree_of(rows), sentence)
        return self.done[name]

    def type_of(self, owner, key, node):
        """(annotation, class of its objects or None)"""
        word = (node.type or "").removesuffix(" or null")
        named = word in self.sections
        if node.below and set(node.below) == {"*"} and not named:
            inner, kind = self.type_of(owner, key, node.below["*"])
            if kind:
                by_name = f"{owner}{camel(key)}ByName"
                self.out.append(written(by_name, "Record", "By name.", [], [f'_parts = {{"*": {kind}}}']))
                return f"Mapping[str, {inner}]", by_name
            return f"Mapping[str, {inner}]", None
        if node.below:
            kind = f"{owner}{camel(key) or 'Each'}"
            self.write(kind, node, node.doc or f"`{key}` of {owner}.")
            return kind, kind
        if named:
            kind = self.section(word)
            return kind, kind
        return OF_JSON[word], None

    def write(self, name, node, sentence):
        word = (node.type or "").removesuffix(" or null")
        base = self.section(word) if word in self.sections else "Record"
        lines, members, parts = [], [], []
        for key, below in node.below.items():
            kind, part = self.type_of(name, key, below)
            kind = "list[" * below.lists + kind + "]" * below.lists
            null = (below.type or "").endswith("or null")
            if null or below.optional or any(b.optional for b in below.below.values()):
                kind += " | None"
            if part:
                parts.append(f'"{key}": {part}')
            if not key.isidentifier() or keyword.iskeyword(key) or hasattr(dict, key):
                lines.append(f"[{key!r}]: {below.doc}")
                if key == "*":
                    members.append("_any = True")
                continue
            if below.doc:
                lines.append(f"{key}: {below.doc}")
            members.append(f"{key}: {kind}")
        if parts:
            inherited = "**" + base + "._parts, " if base != "Record" else ""
            members.append(f"_parts = {{{inherited}{', '.join(parts)}}}")
        self.out.append(written(name, base, sentence, lines, members))


def shapes(moesim):
    page = tables(schema(moesim, "--output"))
    all_of = Shapes({name: (sentence, rows) for name, sentence, rows in page})
    for name in ("run", "plan", "sweep", "whatif", "goodput"):
        all_of.section(name)
    return all_of.out


# --- what goes in -------------------------------------------------------------------------------------------------
def field_type(kind, meaning, default, name, known):
    words = re.fullmatch(r".*: ((?:[\w-]+\|)+[\w-]+)", meaning)
    backquoted = re.findall(r"`([\w-]+)` \(", meaning)
    if kind == "word" and (words or backquoted):
        kind = "Literal[" + ", ".join(f'"{w}"' for w in (words[1].split("|") if words else backquoted)) + "]"
    elif name in known:
        kind = known[name] if kind == "object" else f"{known[name]} | Any"
    else:
        kind = OF_FIELD[kind]
    return kind + (" | None" if default == "null" else "")


def files(moesim):
    seen, out = {}, []
    for kind in KINDS:
        for name, sentence, rows in tables(schema(moesim, kind)):
            seen.setdefault(name, (sentence, rows))
    known = {name: camel(name.replace("[]", "")) for name in seen}
    for name, (sentence, rows) in seen.items():
        members = {
            key: field_type(kind, meaning, default, f"{name}.{key}", known)
            for key, kind, _, _, default, meaning in rows
        }
        lines = [f"{k}: " + (f"({unit}) " if unit else "") + meaning for k, _, unit, _, _, meaning in rows]
        if all(key.isidentifier() and not keyword.iskeyword(key) for key in members):
            typed = [f"{k}: {t}" for k, t in members.items()]
            out.append(written(known[name], "TypedDict, total=False", sentence, lines, typed))
        else:
            keys = ", ".join(f'"{k}": "{t}"' for k, t in members.items())
            out.append(f'{known[name]} = TypedDict("{known[name]}", {{{keys}}}, total=False)  # {sentence}\n')
    return out


def main():
    moesim, folder = sys.argv[1], Path(sys.argv[2])
    made = "Made by mk/shapes.py from the tables of moesim; do not edit."
    head = "from __future__ import annotations\n\nfrom collections.abc import Mapping\nfrom typing import Any"
    (folder / "shapes.py").write_text(
        f'"""What the functions of moesim return, as docs/json.md. {made}"""\n\n'
        f"{head}\n\nfrom .records import Record\n\n\n"
        + "\n\n".join(shapes(moesim))
    )
    (folder / "files.py").write_text(
        f'"""Keys of the files that moesim reads, as docs/reference.md. {made}"""\n\n'
        "from __future__ import annotations\n\nfrom typing import Any, Literal, TypedDict\n\n\n"
        + "\n\n".join(files(moesim))
    )


main()
