"use strict";
// Which builds fit a driver and GPUs. The answers are those of `envbuild resolve`, looked up in the table that data/catalogue.js has.
// No rule is written here: what the table does not answer is "not asked", never "fits".
globalThis.envbuildMachines = (table) => {
  const regex = (source, flags = "g") => new RegExp(source, flags);
  const names = {
    brackets: regex(table.names.brackets, ""),
    share: regex(table.names.share),
    count: regex(table.names.counted),
    empty: regex(table.names.empty),
    family: regex(table.names.family),
    readings: table.names.readings.map((patterns) => patterns.map((source) => regex(source))),
  };
  const capability = regex(`^${table.names.capability}$`, "");
  const withoutMemory = 3; // the reading by which a part of a name is found
  const shortestPart = 3;
  const spellings = []; // of each reading, made when it is needed: for each board the words of its name and of its aliases

  const numbers = (version) => version.split(".").map(Number);

  function isAtLeast(given, minimum) {
    // A branch (384) or a beginning (525.60) stands for the latest driver that begins so.
    for (let place = 0; place < given.length; place += 1) {
      if (place >= minimum.length) return true;
      if (given[place] !== minimum[place]) return given[place] > minimum[place];
    }
    return true;
  }

  // --- names of GPUs: the ways of comparing them are those of envbuild/matrix/gpu_names.py ---

  function words(name, reading) {
    let text = name.toLowerCase().replace(/[_-]/g, " ");
    for (const pattern of [names.empty, ...names.readings[reading]]) text = text.replace(pattern, " ");
    return text.match(/[a-z]+|\d+/g) || [];
  }

  function boardsBy(reading) {
    spellings[reading] ??= table.boards.map((board) => [board[0], ...board[1]].map((name) => words(name, reading)));
    return spellings[reading];
  }

  function contains(all, part) {
    for (let start = 0; start + part.length <= all.length; start += 1) {
      const before = start ? all[start - 1] : "";
      const after = all[start + part.length] || "";
      const letterBefore = /^\d+$/.test(part[0]) && before.length === 1;
      const laptop = /^\d+$/.test(part[part.length - 1]) && /^mx?$/.test(after);
      if (part.every((word, place) => all[start + place] === word) && !letterBefore && !laptop) return true;
    }
    return false;
  }

  function containing(name, wanted) {
    if (wanted.join("").length < shortestPart) return [];
    const brand = name.match(names.family) || [];
    return table.boards.filter((board, place) => {
      if (!boardsBy(withoutMemory)[place].some((each) => contains(each, wanted))) return false;
      const own = board[0].toLowerCase().match(names.family) || [];
      return !(brand.length && own.length && own.join() !== brand.join());
    });
  }

  function matching(name) {
    for (let reading = 0; reading < names.readings.length; reading += 1) {
      const wanted = words(name, reading);
      const flat = wanted.join("");
      if (!flat) continue;
      const found = table.boards.filter((_, place) => boardsBy(reading)[place].some((each) => each.join("") === flat));
      if (!found.length) continue;
      const byAlias = found.some((board) => board[1].some((alias) => words(alias, 0).join("") === flat));
      if (table.names.ignores_brand[reading] && !byAlias) {
        found.push(...containing(name, wanted).filter((board) => !found.includes(board)));
      }
      return found;
    }
    return null;
  }

  function gpu(text) {
    const word = text.normalize("NFKC").trim();
    const parts = capability.exec(word.toLowerCase());
    if (parts) {
      const [major, minor] = parts.slice(1).filter((part) => part !== undefined);
      const wanted = `${Number(major)}.${minor}`;
      const known = table.capabilities.find((each) => each[0] === wanted);
      if (!known) return { error: `The matrix has no GPU with compute capability ${wanted}, so this site has no answer for it.` };
      return { kind: known[2], name: word, capability: wanted, isCapability: true };
    }
    const inside = names.brackets.exec(word);
    const name = (inside ? inside[1] : word).toLowerCase().trim().replace(names.share, " ").replace(names.count, " ").trim();
    let found = matching(name);
    if (!found) {
      const flat = (word.toLowerCase().match(/[a-z0-9]+/g) || []).join(" ");
      const vendor = table.vendors.find((each) => each[2].some((pattern) => regex(`\\b(?:${pattern})\\b`).test(flat)));
      if (vendor) return { error: `“${word}” is a device from ${vendor[0]}. CUDA does not run on it.` };
      found = containing(name, words(name, withoutMemory));
    }
    if (!found.length) return { error: `The matrix has no GPU named “${word}”. Choose one from the list, or give its compute capability, such as sm_89.` };
    if (new Set(found.map((board) => board[2])).size > 1) {
      const some = found.slice(0, 6).map((board) => `${board[0]} (${board[2]})`).join(", ");
      return { error: `“${word}” can be several GPUs with different compute capabilities: ${some}${found.length > 6 ? " …" : ""}.` };
    }
    return { kind: found[0][3], name: found[0][0], capability: found[0][2] };
  }

  function driver(text) {
    const word = text.trim().toLowerCase().replace(/^[rv]+/, "");
    if (!/^\d{1,5}(\.\d{1,5}){0,3}$/.test(word)) return { error: `“${text.trim()}” is not a driver version. Give it as nvidia-smi prints it, such as 384.130.` };
    const branch = word.split(".")[0];
    const remark = table.branches.includes(branch) ? "" : `The matrix does not have driver branch ${branch} (driver ${word}). Only the minimum driver of CUDA was compared. Whether this driver still supports the GPU was not checked.`;
    return { name: word, remark };
  }

  // --- the table ---

  function outcome(build, kind, version) {
    let interval = 0;
    if (version) {
      const given = numbers(version);
      while (interval < table.drivers.length && isAtLeast(given, numbers(table.drivers[interval]))) interval += 1;
    }
    const cell = table.cells[build][kind];
    let found = cell[1];
    for (let place = 0; place < cell.length && cell[place] <= interval; place += 2) found = cell[place + 1];
    return table.outcomes[found];
  }

  const filled = (text, version, board, row) =>
    text
      .replaceAll("{driver}", version)
      .replaceAll("{about}", board ? table.about[board.kind] : "")
      .replaceAll("{gpu}", board ? board.name : "")
      .replaceAll("{build}", row.name);

  // The state alone, of rows with the same `kind` once for each machine: at each key press all rows are judged, and few explained.
  const states = new WeakMap();
  function state(row, machine) {
    if (!states.has(machine)) states.set(machine, new Map());
    const known = states.get(machine);
    if (!known.has(row.kind)) known.set(row.kind, fit(row, machine).state);
    return known.get(row.kind);
  }

  // Answers {state: "fits" | "remarks" | "no" | "unasked", reasons: [[text, source]], remarks: [text]} for a row and a machine:
  // {driver: {name, remark} | null, gpus: [{kind, name}]}.
  function fit(row, machine) {
    if (row.builds === null) return { state: "unasked", reasons: [], remarks: ["`envbuild resolve` chooses another environment for this name, so no machine was checked."] };
    if (machine.none) {
      if (row.builds.length) return { state: "no", reasons: [["It is built for NVIDIA GPUs, and you have none.", ""]], remarks: [] };
      return { state: "fits", reasons: [], remarks: [] };
    }
    const gpus = machine.gpus.length ? machine.gpus : row.gpus.map(gpu);
    const version = machine.driver ? machine.driver.name : row.driver;
    const reasons = new Map();
    const remarks = new Set(machine.driver && machine.driver.remark && row.builds.length ? [machine.driver.remark] : []);
    if (!row.builds.length) remarks.add("It runs on the CPU and uses no GPU, so neither the driver nor the GPU was checked.");
    for (const build of row.builds) {
      for (const board of gpus.length ? gpus : [null]) {
        const found = outcome(build, board ? board.kind : 0, version);
        for (const number of found.objections) reasons.set(filled(table.texts[number][0], version, board, row), table.texts[number][1]);
        for (const number of found.remarks) remarks.add(filled(table.texts[number][0], version, board, row));
      }
    }
    if (reasons.size) return { state: "no", reasons: [...reasons], remarks: [] };
    return { state: remarks.size ? "remarks" : "fits", reasons: [], remarks: [...remarks] };
  }

  // Whether others proved a row on each of the machine's GPUs: on the same board, or, if only a capability is given, on that one.
  function isProvedOn(row, machine) {
    const isOn = (gpu) => row.proved_on.some(([name, code]) => name === gpu.name || (gpu.isCapability && code === gpu.capability));
    return machine.gpus.length > 0 && machine.gpus.every(isOn);
  }

  // --- what nvidia-smi prints: its table, -L, -q and --query-gpu=name,driver_version --format=csv, also with noheader ---

  const howToPaste = "Paste the output of `nvidia-smi`, or of `nvidia-smi --query-gpu=name,driver_version --format=csv`.";
  const brand = /^(?:nvidia|geforce|tesla|quadro|titan|grid|nvs|rtx|gtx|jetson)\b|\(nvgpu\)$/i; // also of GPUs that the table lacks
  const quantity = /^-?\d+(?:\.\d+)? ?(?:MiB|W|%|MHz)$/;
  const oldest = Math.min(...table.branches.map(Number));
  const isFullDriver = (cell) => /^\d{3}\.(?:\d{1,3}\.\d{1,2}|\d{3})$/.test(cell);
  // Such a driver (391.35) looks like a number of watts without its unit. Limits in watts end with .00, and no driver does.
  const isShortDriver = (cell) => /^\d{3}\.(?!00)\d{2}$/.test(cell) && parseInt(cell, 10) >= oldest;
  const isOther = (cell) => !/[a-z]/i.test(cell) || /^P\d{1,2}$/.test(cell) || quantity.test(cell); // P8 is a power state
  const isKnownGpu = (cell) => (brand.test(cell) || /\d/.test(cell)) && !isOther(cell) && !gpu(cell).error;
  const nothing = { gpus: [], drivers: [] };
  const isGpuName = (cell) => brand.test(cell) || isKnownGpu(cell);

  // Answers {gpus, drivers} for the rows of a CSV table without titles, or null if the columns cannot be told apart.
  function readUntitled(rows) {
    if (!rows.some((row) => row.some(isGpuName))) return nothing;
    const place = rows[0].findIndex(isGpuName);
    const isGpuRow = (row) => row.length === rows[0].length && isGpuName(row[place]) && row.filter(isGpuName).length === 1;
    if (place < 0 || !rows.every(isGpuRow)) return null;
    const columns = rows[0].map((_, number) => rows.map((row) => row[number]));
    const [gpus] = columns.splice(place, 1);
    const full = columns.filter((column) => column.some(isFullDriver));
    if (full.length) return full.length === 1 ? { gpus, drivers: full[0] } : null;
    const short = columns.filter((column) => column.some(isShortDriver));
    if (!short.length) return { gpus, drivers: [] };
    const isNumber = (column) =>
      column.some((cell) => /^-?\d+(?:\.\d+)?$/.test(cell)) && // but no index and no compute capability
      !column.every((cell, number) => cell === String(number) || /^\d{1,2}\.\d$/.test(cell));
    const hasUnits = rows.flat().some((cell) => quantity.test(cell));
    const isClear = hasUnits || !columns.some((column) => column !== short[0] && isNumber(column));
    return short.length === 1 && new Set(short[0]).size === 1 && isClear ? { gpus, drivers: short[0] } : null;
  }

  // The same for lines with one cell each: the names of all GPUs, or the driver, or both.
  function readList(cells) {
    const [gpus, drivers] = [cells.filter(isKnownGpu), cells.filter(isFullDriver)];
    return gpus.length + drivers.length === cells.length ? { gpus, drivers } : gpus.length ? null : nothing;
  }

  function readTitled(rows, titles) {
    const cells = (title) => rows.filter((row) => row.length === titles.length && titles.includes(title)).map((row) => row[titles.indexOf(title)]);
    return { gpus: cells("name"), drivers: cells("driver_version") };
  }

  function readCsv(lines, command) {
    const rows = lines.map((line) => line.replace(/^[\s>]+/, "").split(",").map((cell) => cell.trim())).filter((row) => row.join(""));
    const head = rows.findIndex((row) => row.length > 1 && row.includes("name"));
    if (head >= 0) return readTitled(rows.slice(head + 1), rows[head]);
    const titles = command.length === 1 ? command[0][1].split(",").map((title) => title.replace(/^gpu_name$/, "name")) : [];
    if (titles.length > 1 && titles.includes("name")) return readTitled(rows, titles);
    const wide = rows.filter((row) => row.length > 1);
    return wide.length ? readUntitled(wide) : readList(rows.map(([cell]) => cell));
  }

  function readNvidiaSmi(text) {
    if (/nvidia-smi has failed|couldn't communicate|command not found|no devices were found/i.test(text)) {
      return { error: "nvidia-smi found no working driver or no GPU here, so there is nothing to look up." };
    }
    const shown = []; // by the table, which shortens long names
    const listed = []; // by -L and -q
    const lines = text.split(/\r?\n/);
    let version = (/Driver Version\s*:\s*([\d.]+)/.exec(text) || [])[1] || "";
    for (const line of lines) {
      // The table may be indented or quoted, as in a mail. A Jetson has no bus address.
      const row = /^[\s>]*\|\s*\d+\s+(\S.*?)\s+(?:On|Off|N\/A|WDDM|TCC|MCDM)\s*\|\s*(?:[0-9A-F]{4,8}:[0-9A-F]{2}:|N\/A\s)/i.exec(line);
      const whole = /^[\s>]*GPU \d+: (.+?) \(UUID/.exec(line) || /^[\s>]*Product Name\s*:\s*(.+?)\s*$/.exec(line);
      if (row) shown.push(row[1]);
      if (whole) listed.push(whole[1]);
    }
    let gpus = listed.length ? listed : shown;
    if (!gpus.length) {
      const found = readCsv(lines.filter((line) => !line.includes("nvidia-smi")), [...text.matchAll(/--query-gpu[= ]["']?([\w.,]+)/g)]);
      if (!found) return { error: `The lines have no titles, and do not show clearly which parts are the GPU and the driver. ${howToPaste}` };
      const drivers = [...new Set(found.drivers)];
      if (drivers.length > 1) return { error: `The lines name several drivers: ${drivers.join(", ")}. Paste what one machine prints.` };
      gpus = found.gpus;
      version ||= drivers[0] || "";
    }
    const cut = gpus.find((name) => name.endsWith("..."));
    if (cut) return { driver: version, gpus: [], error: `nvidia-smi shortened the name “${cut}”. Also paste the output of \`nvidia-smi -L\`, or choose the GPU from the list.` };
    if (!gpus.length && !version) return { error: `This is not the output of nvidia-smi: it contains neither a driver version nor a GPU. ${howToPaste}` };
    if (!gpus.length && /^[\s>]*\|\s*\d+\s+\S/m.test(text)) return { driver: "", gpus: [], error: "No GPU could be read from the table. Paste the output of `nvidia-smi -L`, too, or choose the GPU from the list." };
    return { driver: version, gpus };
  }

  return { gpu, driver, fit, isProvedOn, state, readNvidiaSmi };
};
