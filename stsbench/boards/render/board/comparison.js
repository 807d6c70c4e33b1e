// Two rows side by side: their numbers and intervals, and how far the numbers are apart.
let chosen = [];
const UNTESTED = "Differences of the numbers as shown. They are not tested: do not read intervals that overlap, or do not, as a test.";
const OTHERWISE = "These rows are scored in different ways, so their numbers have no difference.";

/** A box at every name, made when it is first asked for. */
function addBoxes() {
  if (document.querySelector(".pick")) return;
  for (const unit of units) {
    const box = create("input", { type: "checkbox", className: "pick", ariaLabel: `Compare ${unit.name}` });
    box.addEventListener("change", () => {
      choose(unit, box.checked);
      change();
    });
    unit.lines[0].cells[0].prepend(box);
    unit.box = box;
  }
}

/** Of three the first is dropped, and so is what stands in another table. */
function choose(unit, wanted) {
  const others = chosen.filter((one) => one !== unit && one.table === unit.table);
  chosen = wanted ? [...others, unit].slice(-2) : others;
}

/** The line that is compared: the measured one, if there is one. */
function comparedLine(unit) {
  const lines = shownLines(unit);
  return lines.find((line) => line.dataset.side === "measured") ?? lines[0] ?? unit.lines[0];
}

/** A number with its deviation and its interval in small print. */
function numberCell(cell) {
  const { text, deviation, low, high } = readCell(cell);
  const around = [deviation && `±${deviation}`, low && `${low} to ${high}`].filter(Boolean);
  return create("td", {}, text || "–", ...around.map((part) => create("small", { className: "dev" }, part)));
}

/** How far two numbers are apart, with as many decimals as the longer has; ranks and letters are not numbers. */
function difference(one, other, kind) {
  if (STANDINGS.includes(kind) || !one.text || !other.text) return "–";
  const digits = Math.max(...[one, other].map(({ text }) => (text.split(".")[1] ?? "").length));
  const value = (Number(one.text) - Number(other.text)).toFixed(digits);
  return Number(value) === 0 ? value.replace("-", "") : Number(value) > 0 ? `+${value}` : value;
}

function comparisonRow(place, head, lines, alike) {
  const cells = lines.map((line) => line.cells[place]), read = cells.map(readCell);
  return create("tr", {}, create("th", { scope: "row" }, head.textContent), ...cells.map(numberCell),
    create("td", {}, alike ? difference(...read, head.dataset.kind) : "–"));
}

/** What the reader has to know of these two: whose numbers they are, and that nothing is tested. */
function comparisonNotes(lines, alike) {
  const sides = lines.map((line) => line.dataset.side), names = chosen.map((unit) => unit.name);
  const notes = sides[0] === sides[1] ? [`Both ${sides[0]}.`]
    : [`${names.map((name, at) => `${name}: ${sides[at]}`).join("; ")}. Numbers of two sources may be made differently.`];
  notes.push(alike ? UNTESTED : OTHERWISE);
  const encoders = chosen.map((unit) => unit.lines[0].dataset.encoder);
  if (alike && sides.every((side) => side === "measured") && encoders.every(Boolean) && encoders[0] !== encoders[1]) {
    const written = encoders.map((name) => (/^[\w./+=-]+$/.test(name) ? name : `'${name}'`));
    notes.push(`A test over the same items: stsbench compare ${written.join(" ")}`);
  }
  return notes;
}

function fillComparison() {
  const [{ table }] = chosen, lines = chosen.map(comparedLine);
  const alike = (chosen[0].lines[0].dataset.otherwise ?? "") === (chosen[1].lines[0].dataset.otherwise ?? "");
  const heads = ["", ...chosen.map((unit) => unit.name), "difference"];
  const body = create("tbody", {}, ...shownPlaces(table).map((place) => comparisonRow(place, table.heads[place], lines, alike)));
  const head = create("tr", {}, ...heads.map((text) => (text ? create("th", { scope: "col" }, text) : create("td"))));
  byId("comparison").querySelector("div").replaceChildren(create("table", {}, create("thead", {}, head), body));
  byId("comparison").querySelector("ul").replaceChildren(
    ...comparisonNotes(lines, alike).map((note) => create("li", {}, note)));
}

function showComparison() {
  const asked = byId("compare").checked, before = byId("comparison").hidden;
  document.body.classList.toggle("comparing", asked);
  if (asked) addBoxes();
  if (!asked) chosen = [];
  for (const unit of units) {
    if (unit.box) unit.box.checked = chosen.includes(unit);
    unit.lines.forEach((line) => line.classList.toggle("chosen", chosen.includes(unit)));
  }
  byId("hint").hidden = !asked || chosen.length === 2;
  byId("comparison").hidden = chosen.length < 2;
  if (chosen.length < 2) return;
  fillComparison();
  if (before) byId("comparison").scrollIntoView({ block: "nearest" });
}
