"""What tests of the HTML page ask of it, and do in it."""

from __future__ import annotations

from typing import Any

from tests.boards.browser import Page

LABELS = """[...document.querySelectorAll("tbody tr:not(.title) th[scope=row]")]
    .filter((head) => head.getClientRects().length).map((head) => head.firstChild.textContent)"""
TITLES = """[...document.querySelectorAll(".section, .title")].filter((one) => one.getClientRects().length)
    .map((one) => one.textContent)"""
COLOURS = """["color", "background-color"].map((name) => getComputedStyle(document.body).getPropertyValue(name))"""
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"


def choose(page: Page, field: str, value: str) -> None:
    page.run(f"""{{ const field = document.getElementById("{field}"); field.value = "{value}";
        field.dispatchEvent(new Event("input", {{ bubbles: true }})); }}""")


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


def column(page: Page, place: int) -> list[str]:
    """The shown numbers of a column, of rows that have one."""
    cells = page.run(f"""[...document.querySelectorAll("tbody tr:not(.further) > :nth-child({place}):is(td)")]
        .filter((cell) => cell.getClientRects().length).map((cell) => cell.firstChild.textContent)""")
    return [text for text in cells if text != "–"]


def heads(page: Page) -> list[Any]:
    shown: list[Any] = page.run("""[...document.querySelectorAll("thead th")]
        .filter((head) => head.getClientRects().length).map((head) => head.textContent)""")
    return shown


def settle(page: Page) -> None:
    """Wait until the state is in the address."""
    page.run("new Promise((done) => setTimeout(done, 250))")
