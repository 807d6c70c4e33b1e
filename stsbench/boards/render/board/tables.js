// The tables of the page as objects: their rows are units, each with the lines below it.
const TRAITS = ["method", "backbone", "supervision", "license", "weights"];
/** Facts that are numbers, and the unit in which they are asked for. */
const RANGES = { parameters: 1e6, year: 1 };
/** Columns that say how rows stand to each other. */
const STANDINGS = ["ranks", "letters"];
const UNSAID = "not said";
const byId = (id) => document.getElementById(id);
const create = (tag, facts = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), facts);
  element.append(...children);
  return element;
};

function readTable(element) {
  const table = { element, units: [], heads: [...element.tHead.rows[0].cells], sorted: null };
  let section = "";
  for (const body of element.tBodies) {
    if (body.className === "section") section = body.textContent;
    const title = body.querySelector(".title")?.textContent ?? "";
    for (const line of body.querySelectorAll("tr:not(.title)")) {
      if (body.className === "section") continue;
      if (line.className === "further") table.units.at(-1).lines.push(line);
      else table.units.push(readUnit(table, line, { body, section, title }));
    }
  }
  return table;
}

function readUnit(table, line, place) {
  const traits = TRAITS.map((name) => line.dataset[name] || UNSAID);
  const numbers = Object.entries(RANGES).map(([name, unit]) => parseFloat(line.dataset[name]) / unit);
  const name = line.querySelector(".name").textContent + (line.querySelector(".apart")?.textContent ?? "");
  const text = [name, line.dataset.encoder ?? "", line.dataset.languages ?? "", place.section, place.title, ...traits].join(" ").toLowerCase();
  return { table, lines: [line], ...place, traits, numbers, text, name, shown: true };
}

const tables = [...document.querySelectorAll(".scroll > table")].map(readTable);
const units = tables.flatMap((table) => table.units);

const shownLines = (unit) => unit.lines.filter((line) => !line.hidden);

/** What a cell says: its number as text, its deviation, and the ends of its interval. */
function readCell(cell) {
  const bar = cell.querySelector(".ci");
  const text = (cell.querySelector("b, u") ?? cell).firstChild.textContent;
  return {
    text: text === "–" ? "" : text,
    deviation: cell.querySelector(".dev")?.textContent.slice(1) ?? "",
    low: bar?.dataset.low ?? "",
    high: bar?.dataset.high ?? "",
  };
}
