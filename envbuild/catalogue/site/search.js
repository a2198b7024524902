"use strict";
// The search page: filters the rows of data/catalogue.js, and shows which of them fit the machine that is described above them.
(() => {
  const { fields, rows: packed, machines: table, levels, spoken, words: askedFor } = globalThis.envbuildCatalogue;
  const machines = globalThis.envbuildMachines(table);
  const shownAtOnce = 50;
  const byId = (id) => document.getElementById(id);
  const search = byId("search");
  const machineForm = byId("machine");
  const body = byId("results").tBodies[0];

  const rows = packed.map((values) => {
    const row = Object.fromEntries(fields.map((field, place) => [field, values[place]]));
    const named = row.frameworks.map((each) => each.join(" ")).join(" ");
    row.page = row.page ? `environments/${row.name}.html` : "";
    row.driver ??= "";
    row.gpus ??= [];
    row.proved_on ??= [];
    row.kind = JSON.stringify([row.builds, row.driver, row.gpus]);
    const known = row.frameworks.map((each) => askedFor[each[0]] || "").join(" ");
    row.text = `${row.name} ${named} ${known} cuda ${row.cuda} python ${row.python} ${row.os}`.toLowerCase();
    row.level = row.proofs.reduce((best, kind) => Math.max(best, levels.indexOf(kind) + 1), 0);
    return row;
  });
  // The best proved first, then the newest. The order is made once: filtering keeps it.
  rows.sort((one, other) => Boolean(other.page) - Boolean(one.page) || other.level - one.level || (one.released < other.released ? 1 : -1));

  let limit = shownAtOnce;

  // --- the machine ---

  // What is described: null if nothing is, or if it could not be understood; then no row is said to fit. It is read again only
  // when it has changed.
  let described = "";
  let current = null;
  function readMachine() {
    const now = JSON.stringify([machineForm.gpu.value, machineForm.driver.value, machineForm.none.checked]);
    if (now !== described) {
      described = now;
      current = understand();
    }
    return current;
  }

  function understand() {
    const said = byId("machine-says");
    const describe = (text, isError) => {
      said.textContent = text;
      said.classList.toggle("is-error", Boolean(isError));
    };
    if (machineForm.none.checked) {
      describe("Only environments for the CPU are shown.");
      return { none: true, gpus: [], driver: null };
    }
    const driverText = machineForm.driver.value.trim();
    const gpuTexts = machineForm.gpu.value.split(",").map((text) => text.trim()).filter(Boolean);
    if (!driverText && !gpuTexts.length) {
      describe("");
      return null;
    }
    const driver = driverText ? machines.driver(driverText) : null;
    const gpus = gpuTexts.map(machines.gpu);
    const wrong = [driver, ...gpus].find((each) => each && each.error);
    if (wrong) {
      describe(wrong.error, true);
      return null;
    }
    const unlike = [...new Set(gpus.map((gpu) => `${gpu.name} (compute capability ${gpu.capability})`))];
    const missing = !driver ? " Without a driver, only the GPU is checked." : !gpus.length ? " Without a GPU, only the driver is checked." : "";
    describe(`${[...unlike, driver ? `driver ${driver.name}` : ""].filter(Boolean).join(", ")}.${missing}`);
    return { none: false, gpus, driver };
  }

  function readPasted() {
    const text = byId("pasted").value;
    if (!text.trim()) return;
    const found = machines.readNvidiaSmi(text);
    machineForm.none.checked = false;
    machineForm.driver.value = found.driver || "";
    machineForm.gpu.value = [...new Set(found.gpus || [])].join(", ");
    described = "";
    update();
    if (found.error) {
      byId("machine-says").textContent = found.error;
      byId("machine-says").classList.add("is-error");
    }
  }

  // --- the filters ---

  const beginsWith = (version, wanted) => version === wanted || version.startsWith(`${wanted}.`);

  function accepted() {
    const words = search.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const [framework, version] = [search.framework.value, search.version.value.trim()];
    const level = Number(search.proved.value);
    return (row) =>
      (row.page || (search.elements.all && search.elements.all.checked)) &&
      row.level >= level &&
      (!search.cuda.value || (search.cuda.value === "cpu" ? !row.cuda : row.cuda === search.cuda.value)) &&
      (!search.python.value || row.python.split(", ").includes(search.python.value)) &&
      (!search.os.value || row.os === search.os.value) &&
      (!(framework || version) || row.frameworks.some((each) => (!framework || each[0] === framework) && (!version || beginsWith(each[1], version)))) &&
      words.every((word) => row.text.includes(word));
  }

  // --- the table ---

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const verdicts = {
    fits: ["pass", "fits"],
    remarks: ["warn", "fits, with remarks"],
    no: ["fail", "does not fit"],
    unasked: ["skip", "not checked"],
  };

  function fitCell(answer, isProved) {
    const [style, label] = verdicts[answer.state];
    const cell = element("td", { "data-label": "Your machine" }, element("span", { class: `pill is-${style}` }, label));
    if (isProved) cell.append(" ", element("span", { class: "pill is-pass" }, "proved on your GPU"));
    const lines = [...answer.reasons, ...answer.remarks.map((text) => [text, ""])];
    if (!lines.length) return cell;
    const list = element("ul");
    for (const [text, source] of lines) {
      const item = element("li", {}, text);
      if (/^https?:/.test(source)) item.append(" ", element("a", { href: source, rel: "noreferrer" }, "source"));
      list.append(item);
    }
    cell.append(element("details", {}, element("summary", {}, "Why"), list));
    return cell;
  }

  function line(row, machine) {
    const name = row.page ? element("a", { href: encodeURI(row.page).replaceAll("+", "%2B") }, row.name) : element("code", {}, row.name);
    const titles = row.frameworks.map((each) => each.join(" "));
    const more = titles.length > 4 ? [...titles.slice(0, 4), `and ${titles.length - 4} more`] : titles;
    const about = row.page ? more.join(", ") : `${more.join(", ")} · not locked yet; “envbuild make” locks and builds it`;
    const cells = [
      element("th", { scope: "row" }, name, element("span", { class: "sub" }, about)),
      element("td", { "data-label": "CUDA" }, row.cuda || "CPU"),
      element("td", { "data-label": "Python" }, row.python),
      element("td", { "data-label": "System" }, row.os),
      element("td", { "data-label": "Driver" }, row.driver_min ? `≥ ${row.driver_min}` : "–"),
      element("td", { "data-label": "Proved" }, element("span", { class: `pill is-${row.level ? "pass" : "skip"}` }, row.level ? spoken[levels[row.level - 1]] : "nothing yet")),
    ];
    if (machine) cells.push(fitCell(machines.fit(row, machine), machines.isProvedOn(row, machine)));
    return element("tr", {}, ...cells);
  }

  function update() {
    const machine = readMachine();
    const matches = rows.filter(accepted());
    let listed = matches.map((row) => [row, machine ? machines.state(row, machine) : ""]);
    let hidden = 0;
    if (machine) {
      const order = { fits: 0, remarks: 1, unasked: 2, no: 3 };
      if (!search.misfits.checked) {
        listed = listed.filter(([, state]) => state !== "no");
        hidden = matches.length - listed.length;
      }
      // What others proved on this very GPU comes first, among what fits at all.
      const ranked = listed.map(([row, state]) => [row, state, state !== "no" && machines.isProvedOn(row, machine) ? -1 : order[state]]);
      listed = ranked.sort((one, other) => one[2] - other[2]);
    }
    document.documentElement.classList.toggle("has-machine", Boolean(machine));
    body.replaceChildren(...listed.slice(0, limit).map(([row]) => line(row, machine)));
    const left = listed.length - Math.min(limit, listed.length);
    byId("more").hidden = !left;
    byId("more").textContent = `Show ${Math.min(left, shownAtOnce)} more of ${left}`;
    byId("nothing").hidden = Boolean(listed.length);
    byId("count").textContent = `${listed.length} ${listed.length === 1 ? "environment" : "environments"}${machine ? (hidden ? `; ${hidden} more do not fit your machine` : " for your machine") : ""}`;
    remember();
  }

  // --- the address keeps the question, so that it can be sent to somebody ---

  const controls = [...search.elements, machineForm.gpu, machineForm.driver, machineForm.none].filter((each) => each.name);
  let pending = 0;

  function remember() {
    clearTimeout(pending);
    pending = setTimeout(() => {
      const said = new URLSearchParams();
      for (const each of controls) {
        const value = each.type === "checkbox" ? (each.checked ? "1" : "") : each.value;
        if (value && !(each.name === "proved" && value === "0")) said.set(each.name, value);
      }
      const text = said.toString();
      if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    }, 400);
  }

  // An address without a question, such as #search-title, names a part of the page.
  const isQuestion = (hash) => !hash || controls.some((each) => new URLSearchParams(hash.slice(1)).has(each.name));

  function forget() {
    search.reset();
    machineForm.reset();
    described = ""; // so that an error about pasted text goes away, too
  }

  // The address states the whole question: what it leaves out is not asked.
  function recall(hash) {
    const said = new URLSearchParams(hash.slice(1));
    forget();
    for (const each of controls) {
      const value = said.get(each.name);
      if (value === null) continue;
      if (each.type === "checkbox") each.checked = value === "1";
      else each.value = value;
    }
  }

  const changed = () => {
    limit = shownAtOnce;
    update();
  };
  search.addEventListener("input", changed);
  machineForm.addEventListener("input", (event) => {
    limit = shownAtOnce;
    if (event.target.id === "pasted") readPasted();
    else update();
  });
  for (const form of [search, machineForm]) form.addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => {
    forget();
    changed();
    search.q.focus();
  });
  byId("more").addEventListener("click", () => {
    const first = limit;
    limit += shownAtOnce;
    update();
    const next = body.rows[first];
    if (next) (next.querySelector("a, summary") || byId("more")).focus();
  });
  addEventListener("hashchange", (event) => {
    const { hash } = new URL(event.newURL); // not of `location`, because `remember` may have run before this event
    if (!isQuestion(hash)) return;
    recall(hash);
    changed();
  });
  document.documentElement.classList.add("has-script");
  recall(location.hash);
  update();
})();
