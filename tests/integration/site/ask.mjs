// Puts questions to the site's own JavaScript. Argument: the folder of the site.
// Standard input: JSON lines {name, driver, gpu} or {smi}. Prints one JSON line for each.
import { readFileSync } from "node:fs";
import path from "node:path";
import vm from "node:vm";

const site = process.argv[2];
for (const file of ["data/catalogue.js", "machines.js"]) vm.runInThisContext(readFileSync(path.join(site, file), "utf8"), { filename: file });
const { fields, rows, machines: table } = globalThis.envbuildCatalogue;
const machines = globalThis.envbuildMachines(table);
const byName = new Map(rows.map((values) => {
  const row = Object.fromEntries(fields.map((field, place) => [field, values[place]]));
  row.driver ??= "";
  row.gpus ??= [];
  row.proved_on ??= [];
  return [row.name, row];
}));

function answer({ name, driver, gpu, smi }) {
  if (smi !== undefined) return machines.readNvidiaSmi(smi);
  const asked = driver ? machines.driver(driver) : null;
  const gpus = gpu ? gpu.split(",").map(machines.gpu) : [];
  const wrong = [asked, ...gpus].find((each) => each && each.error);
  if (wrong) return { state: "unknown", why: wrong.error };
  const row = byName.get(name);
  const machine = { driver: asked, gpus, none: false };
  return { ...machines.fit(row, machine), gpus: gpus.map((each) => each.name), proved: machines.isProvedOn(row, machine) };
}

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) console.log(JSON.stringify(answer(JSON.parse(line))));
