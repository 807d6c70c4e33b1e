// Sorting and filtering of the tables on this page. Without it they stand as they are.
"use strict";
(() => {
  const TRAITS = ["method", "backbone", "supervision"];
  const UNSAID = "not said";
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const tables = [...document.querySelectorAll("table")].map(readTable);
  const units = tables.flatMap((table) => table.units);

  /** A table: its bodies, and its rows as units, each with the lines below it. */
  function readTable(element) {
    const table = { element, units: [], heads: [...element.tHead.rows[0].cells], sorted: null };
    let section = "";
    for (const body of element.tBodies) {
      if (body.className === "section") section = body.textContent;
      const title = body.querySelector(".title")?.textContent ?? "";
      for (const line of body.querySelectorAll("tr:not(.title)")) {
        if (body.className === "section") continue;
        if (line.className === "further") table.units.at(-1).lines.push(line);
        else table.units.push(readUnit(line, body, `${section} ${title}`));
      }
    }
    return table;
  }

  function readUnit(line, body, above) {
    const traits = TRAITS.map((name) => line.dataset[name] || UNSAID);
    const name = line.cells[0].firstChild.textContent;
    const text = [name, line.dataset.encoder ?? "", above, ...traits].join(" ").toLowerCase();
    return { lines: [line], body, traits, text, name, shown: true };
  }

  /** Whether some alternative has all its words in the text. */
  function found(text, search) {
    const alternatives = search.toLowerCase().split(",").map((one) => one.trim()).filter(Boolean);
    return !alternatives.length || alternatives.some((one) => one.split(/\s+/).every((word) => text.includes(word)));
  }

  function filterRows() {
    const search = byId("search").value, side = byId("side").value;
    const wanted = TRAITS.map((name) => byId(name).value);
    for (const unit of units) {
      const fits = wanted.every((value, at) => !value || value === unit.traits[at]) && found(unit.text, search);
      unit.lines.forEach((line, at) => {
        line.hidden = !fits || (side !== "" && line.dataset.side !== side);
        line.classList.toggle("alone", at > 0 && !line.hidden && unit.lines[0].hidden);
      });
      unit.shown = unit.lines.some((line) => !line.hidden);
    }
  }

  /** The number of a unit's first shown line that has one in this column; NaN where none has. */
  function numberIn(unit, place) {
    const numbers = unit.lines.filter((line) => !line.hidden).map((line) => parseFloat(line.cells[place].textContent));
    return numbers.find((number) => !Number.isNaN(number)) ?? NaN;
  }

  function compare(place, sign) {
    if (place === 0) return (a, b) => sign * a.name.localeCompare(b.name, "en", { numeric: true });
    return (a, b) => {
      const left = a.keys, right = b.keys;
      if (Number.isNaN(left) || Number.isNaN(right)) return Number.isNaN(left) - Number.isNaN(right);
      return sign * (left - right);
    };
  }

  /** Put rows into their order: within their groups, or all together. */
  function placeRows(table) {
    const grouped = byId("groups").checked, order = [...table.units];
    if (table.sorted) {
      for (const unit of order) unit.keys = numberIn(unit, table.sorted.place);
      order.sort(compare(table.sorted.place, table.sorted.sign));
    }
    const [first] = [...table.element.tBodies].filter((body) => body.className !== "section");
    for (const unit of order) (grouped ? unit.body : first).append(...unit.lines);
    for (const title of table.element.querySelectorAll(".title, .section")) title.hidden = !grouped;
    if (grouped) hideEmpty(table);
    else for (const body of table.element.tBodies) body.hidden = body !== first;
  }

  /** Groups without a row that is shown go, and headings above nothing but such groups. */
  function hideEmpty(table) {
    const full = new Set(table.units.filter((unit) => unit.shown).map((unit) => unit.body));
    let heading = null;
    for (const body of table.element.tBodies) {
      if (body.className === "section") (heading = body).hidden = true;
      else if (!(body.hidden = !full.has(body)) && heading) heading.hidden = false;
    }
  }

  function refresh() {
    document.body.classList.toggle("flat", !byId("groups").checked);
    filterRows();
    tables.forEach(placeRows);
    const shown = units.filter((unit) => unit.shown).length;
    const away = document.querySelectorAll("#columns input:not(:checked)").length;
    byId("status").textContent = `${shown} of ${units.length} rows`
      + (away ? `; ${away} tasks hidden, averages are over all of them` : "");
  }

  /** First the best on top, then the worst, then the order the page came in. */
  function sortBy(table, place) {
    const head = table.heads[place];
    const natural = place === 0 || head.dataset.better === "low" ? 1 : -1;
    const before = table.sorted?.place === place ? table.sorted.sign : 0;
    const sign = before === 0 ? natural : before === natural ? -natural : 0;
    table.sorted = sign ? { place, sign } : null;
    for (const other of table.heads) other.removeAttribute("aria-sort");
    if (sign) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    placeRows(table);
  }

  function addSorting(table) {
    table.heads.forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => sortBy(table, place));
      head.append(button);
    });
  }

  /** Offer values to choose from, where there are several. */
  function offer(id, values) {
    const known = [...new Set(values)].sort((a, b) => (a === UNSAID) - (b === UNSAID) || a.localeCompare(b, "en"));
    byId(id).append(...known.map((value) => new Option(value, value)));
    byId(id).closest("label").hidden = known.length < 2;
  }

  function addColumns() {
    const heads = new Map(tables.flatMap((t) => t.heads.filter((h) => h.dataset.task)).map((h) => [h.dataset.task, h]));
    const box = byId("columns").querySelector("div");
    for (const [task, head] of heads) {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "checkbox", checked: true, value: task });
      label.append(input, ` ${head.textContent}`);
      box.append(label);
    }
    const boxes = [...box.querySelectorAll("input")];
    box.querySelectorAll("button").forEach((button, at) => button.addEventListener("click", () => {
      for (const one of boxes) one.checked = at === 0;
      hideColumns();
    }));
    byId("columns").hidden = heads.size < 2;
  }

  const rules = document.head.appendChild(document.createElement("style"));

  function hideColumns() {
    const away = new Set([...document.querySelectorAll("#columns input:not(:checked)")].map((one) => one.value));
    rules.textContent = tables.flatMap((table) => table.heads.map((head, place) => away.has(head.dataset.task)
      ? `#${table.element.id} tr > :nth-child(${place + 1}) { display: none; }` : "")).join("\n");
    refresh();
  }

  function clear() {
    byId("controls").reset();
    for (const table of tables) {
      table.sorted = null;
      for (const head of table.heads) head.removeAttribute("aria-sort");
    }
    document.body.classList.remove("detailed");
    hideColumns();
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const nameTheme = () => { byId("theme").textContent = isDark() ? "Light" : "Dark"; };

  function setTheme(theme) {
    root.dataset.theme = theme;
    // Pages from files may keep nothing in some browsers.
    try { localStorage.setItem("stsbench-theme", theme); } catch { /* then for this visit only */ }
    nameTheme();
  }

  function startTheme() {
    try { root.dataset.theme = localStorage.getItem("stsbench-theme") ?? ""; } catch { /* as the system has it */ }
    nameTheme();
    dark.addEventListener("change", nameTheme);
    byId("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
  }

  tables.forEach(addSorting);
  TRAITS.forEach((name, at) => offer(name, units.map((unit) => unit.traits[at])));
  offer("side", units.flatMap((unit) => unit.lines.map((line) => line.dataset.side)));
  addColumns();
  byId("groups").closest("label").hidden = !document.querySelector(".title, .section");
  byId("details").closest("label").hidden = !document.querySelector(".facts");
  byId("details").addEventListener("change", (event) => document.body.classList.toggle("detailed", event.target.checked));
  for (const id of [...TRAITS, "side", "groups"]) byId(id).addEventListener("change", refresh);
  byId("search").addEventListener("input", refresh);
  byId("columns").addEventListener("change", hideColumns);
  byId("clear").addEventListener("click", clear);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").hidden = false;
  byId("filters").open = matchMedia("(min-width: 40rem)").matches;
  startTheme();
  refresh();
})();
