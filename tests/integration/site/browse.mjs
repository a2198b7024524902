// Uses the catalogue in a real browser. Arguments: the folder of node_modules, the browser, the folder of the site, a folder
// for pictures.
// Prints JSON: findings of axe, console errors, requests to other servers, widths, times of key presses, and the elements that
// the keyboard reaches.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [modules, executablePath, site, drawn, ...pages] = process.argv.slice(2);
const require = createRequire(path.join(modules, "x.js"));
const { default: puppeteer } = await import(pathToFileURL(require.resolve("puppeteer-core")).href);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const address = (name) => pathToFileURL(path.join(site, name)).href;
const said = { axe: [], console: [], elsewhere: [], wide: [], keys: [], focus: [], found: {} };

const browser = await puppeteer.launch({ executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu"] });
try {
  const open = async (name, width, scheme, script = true) => {
    const page = await browser.newPage();
    await page.setJavaScriptEnabled(script);
    await page.setViewport({ width, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    page.on("console", (line) => { if (["error", "warn"].includes(line.type())) said.console.push(`${name}: ${line.text()}`); });
    page.on("pageerror", (error) => said.console.push(`${name}: ${error.message}`));
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) said.elsewhere.push(request.url()); });
    await page.goto(address(name), { waitUntil: "load" });
    return page;
  };
  const judge = async (page, what) => {
    const width = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    if (width[0] > width[1]) said.wide.push([what, ...width]);
    await page.evaluate(axe);
    const found = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ["violations"], preload: false })).violations.map((each) => [each.id, each.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} | ${node.failureSummary}`)]));
    for (const violation of found) said.axe.push([what, ...violation]);
    await page.screenshot({ path: path.join(drawn, `${what.replace(/[^a-z0-9]+/gi, "-")}.png`) });
  };
  const machine = async (page, gpu, driver) => {
    await page.click("input[name=gpu]");
    await page.type("input[name=gpu]", gpu);
    await page.type("input[name=driver]", driver);
  };

  for (const width of [400, 1280]) {
    for (const scheme of ["light", "dark"]) {
      for (const name of ["index.html", ...pages]) {
        const page = await open(name, width, scheme);
        if (name !== "index.html") await page.evaluate(() => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
        await judge(page, `${name} ${width} ${scheme}`);
        if (name === "index.html") {
          await machine(page, "GTX 1080 Ti", "384.130");
          await page.click("input[name=misfits]");
          await page.evaluate(() => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
          await page.evaluate(() => document.querySelector("#count").scrollIntoView());
          await judge(page, `${name} machine ${width} ${scheme}`);
        }
        await page.close();
      }
    }
  }

  // Every key press with all names listed: the time from the event to the drawn frame, and the time of the page's own code.
  const page = await open("index.html", 1280, "light");
  said.found.names = await page.evaluate(() => globalThis.envbuildCatalogue.rows.length);
  await page.click("input[name=all]");
  await machine(page, "NVIDIA A100-SXM4-80GB", "535.104.05");
  said.keys = await page.evaluate(async () => {
    const field = document.querySelector("input[name=q]");
    const times = [];
    field.focus();
    for (const text of ["t", "tf", "tf ", "tf 2", "tf 2.", "tf 2.1", "", "p", "py", "pyt", "cuda", "cuda12", "zzz", ""]) {
      field.value = text;
      const begin = performance.now();
      field.dispatchEvent(new InputEvent("input", { bubbles: true }));
      document.body.getBoundingClientRect(); // the time of an answer includes its layout
      times.push(performance.now() - begin);
      await new Promise((resume) => requestAnimationFrame(resume));
    }
    return times;
  });
  said.found.count = await page.$eval("#count", (each) => each.textContent);

  // The keyboard alone: Tab reaches every input element in order, with a visible focus.
  await page.goto(address("index.html"));
  await page.evaluate(() => scrollTo(0, 0));
  for (let press = 0; press < 30; press += 1) {
    await page.keyboard.press("Tab");
    said.focus.push(await page.evaluate(() => {
      const each = document.activeElement;
      const style = getComputedStyle(each);
      return [each.name || each.id || each.textContent.trim().slice(0, 30), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
    }));
  }
  await page.focus("input[name=q]");
  await page.keyboard.type("tf 1.12 cuda9 py35");
  await page.keyboard.press("Tab");
  said.found.typed = await page.$$eval("#results tbody tr", (rows) => rows.map((row) => row.querySelector("a, code").textContent));
  await page.focus("#results tbody a");
  await Promise.all([page.waitForNavigation(), page.keyboard.press("Enter")]);
  said.found.opened = await page.$eval("h1", (each) => each.textContent);

  // Pasted text; an address with a question; a page without scripts.
  const paste = await open("index.html", 1280, "light");
  const pasted = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2     |\n|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                    0 |\n";
  await paste.$eval("#pasted", (each, text) => { each.value = text; each.dispatchEvent(new InputEvent("input", { bubbles: true })); }, pasted);
  said.found.pasted = await paste.$eval("#machine-says", (each) => each.textContent);
  await paste.$eval("#pasted", (each) => { each.value = "nonsense"; each.dispatchEvent(new InputEvent("input", { bubbles: true })); });
  said.found.nonsense = [await paste.$eval("#machine-says", (each) => each.textContent), await paste.$$eval("#results .pill", (all) => all.filter((each) => each.textContent.startsWith("fits")).length)];
  const asked = await open("index.html", 1280, "light");
  await asked.goto(`${address("index.html")}#q=mxnet&gpu=sm_61`);
  await asked.reload();
  said.found.asked = await asked.$eval("input[name=q]", (each) => each.value);
  // A link states the whole question; a link to a part of the page states none, and keeps the question. The last link comes while
  // the question before it is being remembered.
  const links = await open("index.html", 1280, "light");
  const question = () => links.evaluate(() => {
    const [search, machine] = [document.querySelector("#search"), document.querySelector("#machine")];
    return Object.fromEntries([...new FormData(search), ...new FormData(machine), ["pasted", machine.pasted.value], ["says", document.querySelector("#machine-says").textContent]].filter(([, value]) => value && value !== "0"));
  });
  const follow = async (hash) => {
    await links.evaluate((hash) => new Promise((resume) => { addEventListener("hashchange", () => setTimeout(resume)); location.hash = hash; }), hash);
    return question();
  };
  await links.select("select[name=python]", "3.9");
  await links.click("input[name=all]");
  await links.$eval("#pasted", (each, text) => { each.value = text; each.dispatchEvent(new InputEvent("input", { bubbles: true })); }, pasted);
  await links.click("input[name=misfits]");
  await links.type("input[name=q]", "tf");
  await new Promise((resume) => setTimeout(resume, 600));
  said.found.links = { before: await question(), part: await follow("#search-title"), link: await follow("#q=mxnet") };
  await links.$eval("#pasted", (each) => { each.value = "nonsense"; each.dispatchEvent(new InputEvent("input", { bubbles: true })); });
  said.found.links.after = await follow("#q=caffe&cuda=cpu");
  await links.evaluate(() => { location.hash = "#os=debian11"; history.replaceState(null, "", "#q=caffe&cuda=cpu"); });
  await new Promise((resume) => setTimeout(resume, 600));
  said.found.links.late = [await question(), await links.evaluate(() => location.hash)];
  said.found.links.none = await follow("#");
  // What was proved on the reader's GPU comes first, and says so.
  const proved = await open("index.html", 1280, "light");
  await machine(proved, "GTX 1080 Ti", "470.82.01");
  said.found.proved = await proved.$$eval("#results tbody tr", (rows) => rows.slice(0, 2).map((row) => [row.querySelector("a, code").textContent, row.textContent.includes("proved on your GPU")]));
  await judge(proved, "index.html proved");
  const plain = await open("index.html", 1280, "light", false);
  said.found.plain = await plain.$$eval("#results tbody tr", (rows) => rows.length);
} finally {
  await browser.close();
}
console.log(JSON.stringify(said));
