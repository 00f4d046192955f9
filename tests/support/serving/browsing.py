"""The server's page, operated by keyboard only."""

from playwright.sync_api import Page

ATTACK = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>"
PAGE_SECONDS = 60  # on a machine with other work
FOCUSED = """() => {
    const focused = document.activeElement;
    return focused.labels?.[0]?.textContent ?? focused.getAttribute("aria-label") ?? focused.textContent;
}"""
LOW_CONTRAST = """() => {
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const [r, g, b] = channels(colour).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        const colour = getComputedStyle(element).backgroundColor;
        return channels(colour)[3] === 0 && element.parentElement ? behind(element.parentElement) : colour;
    };
    const seen = [...document.body.querySelectorAll("*")].filter((element) => element.checkVisibility() &&
        (element.value || [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())));
    const ratio = (element) => {
        const pair = [light(getComputedStyle(element).color), light(behind(element))].sort((a, b) => b - a);
        return (pair[0] + 0.05) / (pair[1] + 0.05);
    };
    return seen.length < 30 ? ["nothing to see"] : seen.filter((element) => ratio(element) < 4.5)
        .map((element) => `${element.tagName} ${element.textContent}`);
}"""


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element called `name` has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == name:
            return
    raise AssertionError(f"Tab does not reach {name}")


def type_into(page: Page, name: str, text: str) -> None:
    tab_to(page, name)
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def pick(page: Page, name: str, option: str) -> None:
    """Choose an option with the arrow keys."""
    tab_to(page, name)
    page.keyboard.press("Home")
    for _ in range(30):
        if page.evaluate("() => document.activeElement.selectedOptions[0].textContent") == option:
            return
        page.keyboard.press("ArrowDown")
    raise AssertionError(f"{name} has no option {option}")
