"""What pages need beyond Sphinx: names in docstrings as links, and the help of every command."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

import bayesmf
from public_names import public_names


@cache
def names() -> frozenset[str]:
    """Every public name, methods with their class."""
    return frozenset(name for name, _ in public_names())


def public(role: str, raw: str, text: str, line: int, inliner: Any, *_: Any, **__: Any) -> Any:
    """A name in single backticks: a link where it is a public name, code where it is not."""
    code = nodes.literal(raw, text)
    env = inliner.document.settings.env
    target = text.removeprefix("bayesmf.").removesuffix("()").replace("model.", "BayesianMF.")
    if f"{env.ref_context.get('py:class')}.{target}" in names():
        target = f"{env.ref_context['py:class']}.{target}"  # of the class that is documented
    if target not in names():
        return [code], []
    link = pending_xref(
        raw, code, refdomain="py", reftype="obj", reftarget=f"bayesmf.{target}", refexplicit=True
    )
    link["refdoc"] = env.docname
    return [link], []


class Commands(Directive):
    """A section for each command: what `bayesmf COMMAND -h` says, taken when pages are built."""

    def run(self) -> list[nodes.Node]:
        os.environ["COLUMNS"] = "88"
        from bayesmf.cli import COMMANDS

        return [self._section(name, what) for name, what in COMMANDS.items()]

    def _section(self, name: str, what: str) -> nodes.Node:
        title = f"bayesmf {name}"
        section = nodes.section(
            ids=[nodes.make_id(title)], names=[nodes.fully_normalize_name(title)]
        )
        text = import_module(f"bayesmf.cli.{name}").parser().format_help()
        section += nodes.title(title, title)
        section += nodes.paragraph("", f"{what[0].upper()}{what[1:]}.")
        section += nodes.literal_block(text, text, language="none")
        self.state.document.note_explicit_target(section)
        return section


def setup(app: Sphinx) -> dict[str, Any]:
    """Make the role and the directive known."""
    app.add_role("public", public)
    app.add_directive("commands", Commands)
    return {"version": bayesmf.__version__, "parallel_read_safe": True, "parallel_write_safe": True}
