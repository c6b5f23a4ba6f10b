// Drives the page in Chromium. page_test.go starts it with the pages' URLs by fixture and a folder for pictures:
//   node drive.mjs '{"urls":{"three":"http://…"},"shots":"/tmp/…"}'
// It prints a line of JSON for each check, and one for each change that the test is to make: {"do":"…"}. The test
// answers with a line when the change is made.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const { urls, shots } = JSON.parse(process.argv[2]);
const print = (o) => process.stdout.write(`${JSON.stringify(o)}\n`);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const change = async (what) => {
  print({ do: what });
  await answers.next();
};
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const must = (yes, why) => {
  if (!yes) throw new Error(why);
};
const same = (have, want, what) =>
  must(JSON.stringify(have) === JSON.stringify(want), `${what}: have ${JSON.stringify(have)}, want ${JSON.stringify(want)}`);

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"],
  timeout: 120_000,
});

// check runs one check in a browser context of its own. No request may go to another host, and the page may report no
// error. An error of the Content-Security-Policy is one.
const check = async (name, fixture, f, { scheme = "light", width = 1360, height = 800, errors = [] } = {}) => {
  const start = Date.now();
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", timezoneId: "UTC" });
  context.setDefaultTimeout(90_000);
  const page = await context.newPage();
  const host = new URL(urls[fixture]).host;
  const faults = [];
  page.on("request", (r) => new URL(r.url()).host === host || faults.push(`request to ${r.url()}`));
  page.on("pageerror", (e) => faults.push(`error ${e.message}`));
  page.on("console", (m) => {
    if (m.type() === "error" && !errors.some((e) => m.text().includes(e))) faults.push(`console: ${m.text()}`);
  });
  try {
    await page.goto(urls[fixture]);
    await page.waitForSelector(["empty", "bare"].includes(fixture) ? ".empty" : ".map");
    await f(page);
    same(faults, [], "requests and errors");
    print({ name, ok: true, seconds: (Date.now() - start) / 1000 });
  } catch (e) {
    await page.screenshot({ path: join(shots, `failed-${name.replace(/\W+/g, "-")}.png`) }).catch(() => {});
    print({ name, ok: false, why: `${e.message}${faults.length ? `; ${faults.join("; ")}` : ""}` });
  }
  await context.close();
};

const shot = (page, name) => page.screenshot({ path: join(shots, `${name}.png`) });
const view = (page, name) => page.getByRole("link", { name, exact: true }).click();
const panel = (page) => page.getByRole("complementary", { name: "Selection" });
const title = async (page) => (await panel(page).locator("h2").textContent()).trim();
const way = (page, a, b) => page.locator(`[aria-label^="Way between ${a} and ${b}:"]`);
const focused = (page) => page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? "");

// clickLine clicks a place of a line at which no other line is on top.
const clickLine = async (page, line) => {
  const at = await line.locator(".hit").evaluate((hit) => {
    const matrix = hit.getScreenCTM();
    for (let part = 0.1; part < 0.9; part += 0.02) {
      const p = hit.getPointAtLength(hit.getTotalLength() * part).matrixTransform(matrix);
      if (hit.parentNode.contains(document.elementFromPoint(p.x, p.y))) return { x: p.x, y: p.y };
    }
    return undefined;
  });
  must(at, "no place of the line is on top");
  await page.mouse.click(at.x, at.y);
};

const accessible = async (page, what) => {
  const found = await page.evaluate(async (source) => {
    if (!window.axe) (0, eval)(source);
    // The text of a drawing inside a button is not part of its name: the label has all of it, in words.
    const rules = { "label-content-name-mismatch": { enabled: false } };
    const { violations } = await window.axe.run(document, { resultTypes: ["violations"], rules });
    return violations
      .filter((v) => v.impact === "serious" || v.impact === "critical")
      .map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.target.join(" ")).join(", ")}`);
  }, axe);
  same(found, [], `defects of accessibility, ${what}`);
};

await check("by mouse from opening to a way", "three", async (page) => {
  await way(page, "east/node-1", "west/node-2").waitFor();
  await shot(page, "three");
  must(!page.url().includes("token"), `the URL still has the token: ${page.url()}`);
  await clickLine(page, way(page, "east/node-1", "west/node-2"));
  same(await title(page), "east/node-1 – west/node-2", "title");
  const text = await panel(page).innerText();
  for (const want of ["down in one direction", "to west/node-2", "BFD on Node node-1 receives nothing", "tombolo mc verify east west", "10.3.0.2"])
    must(text.includes(want), `the panel lacks ${want}: ${text}`);
  await shot(page, "way");
  await page.getByRole("button", { name: "all ways between east and west" }).click();
  same(await title(page), "east – west", "title of the link");
  await page.goBack();
  same(await title(page), "east/node-1 – west/node-2", "title after the back button");
  await page.goBack();
  same(await panel(page).count(), 0, "panels after the second back button");
  await page.goForward();
  const url = page.url();
  await page.reload();
  await panel(page).waitFor();
  same([page.url(), await title(page)], [url, "east/node-1 – west/node-2"], "after a reload");
});

await check("by keyboard from opening to a way", "three", async (page) => {
  const label = "Way between north/node-1 and east/node-2";
  const other = "Way between east/node-2 and north/node-1";
  let at = "";
  for (let i = 0; i < 80 && !at.startsWith(label) && !at.startsWith(other); i++) {
    await page.keyboard.press("Tab");
    at = await focused(page);
  }
  must(at.includes(" down, ") && at.endsWith(" down"), `focus is at ${at}`);
  await page.keyboard.press("Enter");
  same(await title(page), "east/node-2 – north/node-1", "title");
  same(await focused(page), "Selection", "focus after Enter");
  await page.keyboard.press("Escape");
  same([await panel(page).count(), await focused(page)], [0, at], "panels and focus after Escape");
  await page.keyboard.press("/");
  await page.keyboard.type("gateway west/node-2");
  await page.keyboard.press("Enter");
  same(await title(page), "node-2", "title after Find");
  must((await panel(page).innerText()).includes("leaving"), "the panel of the Gateway lacks its phase");
});

await check("views and their panels", "three", async (page) => {
  await page.getByRole("button", { name: /^Cluster west:/ }).click();
  const text = await panel(page).innerText();
  for (const want of ["2 problems", "PortsConflict", "UnknownGroup", "kubectl --context west describe serviceexport -n shop web"])
    must(text.includes(want), `the panel of the cluster lacks ${want}: ${text}`);
  await shot(page, "cluster");
  await accessible(page, "map");
  await view(page, "Services");
  await page.getByRole("row", { name: /web/ }).click();
  must((await panel(page).innerText()).includes("Ports of shop/web differ"), "the panel of the Service lacks the conflict");
  await shot(page, "services");
  await accessible(page, "Services");
  await view(page, "Nodes");
  await page.getByLabel("Filter").fill("west unknowngroup");
  same(await page.getByRole("row").count(), 2, "rows after the filter");
  await page.getByRole("row").nth(1).click();
  same(await title(page), "node-3", "title of the Node");
  must(new URL(page.url()).hash.includes("q=west+unknowngroup"), `the URL lacks the filter: ${page.url()}`);
  await page.getByLabel("Filter").fill("");
  await shot(page, "nodes");
  await accessible(page, "Nodes");
  await view(page, "Timeline");
  must((await page.getByRole("table").innerText()).includes("Nothing has changed"), "the timeline is not empty");
  await accessible(page, "Timeline");
  await view(page, "Map");
  same(await title(page), "node-3", "title after a change of the view");
});

await check("the summary", "well", async (page) => {
  const summary = page.getByRole("status");
  await summary.getByText("nothing is down").waitFor();
  await change("Node not ready");
  await summary.getByText("1 Node bad").waitFor();
  await change("API server silent");
  await summary.getByText(/1 cluster, .* not known/).waitFor();
  same(await summary.locator(".mark.ok").count(), 0, "green marks while a cluster is not known");
  await change("no ways");
  await summary.getByText(/[0-9] directions unknown/).waitFor();
  same(await summary.locator(".mark.ok").count(), 0, "green marks while ways are not known");
});

await check("drops, from the map to the rule", "three", async (page) => {
  await view(page, "Drops");
  await page.getByRole("row", { name: /shop\/web-5d4f7:41022/ }).waitFor();
  same(await page.getByRole("row").count(), 3, "rows without connections");
  must((await page.locator(".bar").innerText()).includes("7 records are lost"), "the view lacks the lost records");
  await accessible(page, "Drops");
  await view(page, "Map");
  await page.getByRole("button", { name: "4 packets dropped in east in the last minute" }).focus();
  await shot(page, "map-drops");
  await page.keyboard.press("Enter");
  await page.getByRole("row", { name: /10.102.0.4:5353 in west/ }).focus();
  await page.keyboard.press("Enter");
  const text = await panel(page).innerText();
  for (const want of ["ClusterNetworkPolicy strict ingress[0]", "IngressRule", "tombolo observe --context east --to pay/ledger-0"])
    must(text.includes(want), `the panel of the drop lacks ${want}: ${text}`);
  await shot(page, "drops");
  await page.getByRole("button", { name: "Which path does it take?" }).click();
  await panel(page).getByText("the client is in cluster west: open the record of that cluster").waitFor();
  await page.getByRole("row", { name: /shop\/web-5d4f7:41022/ }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Which rules decide?" }).focus();
  await page.keyboard.press("Enter");
  await panel(page).getByText("isolated by NetworkPolicy pay/ledger-0").waitFor();
  const rules = await panel(page).innerText();
  for (const want of ["Rules that decide now", "Pod pay/ledger-0 10.101.3.9 on node-3, port 5432", "egress of shop/ledger-0 on node-2", "The switch agrees."])
    must(rules.includes(want), `the rules lack ${want}: ${rules}`);
  await shot(page, "why");
  await accessible(page, "rules");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await panel(page).getByText("dropped at Node west/node-1, in table IngressRule (isolated): ledger-0").waitFor();
  const lanes = await panel(page).locator(".lane").allInnerTexts();
  same(lanes.map((l) => l.split("\n")[0]), ["Cluster east", "Cluster west"], "lanes");
  for (const want of ["goes to Node node-1", "by NetworkPolicy shop/ledger-0 egress[0]", "chooses ledger-0 of 2 choices", "goes to Gateway 10.3.0.1 of west"])
    must(lanes[0].includes(want), `the first lane lacks ${want}: ${lanes[0]}`);
  await shot(page, "trace");
  await accessible(page, "trace");
  await page.getByRole("checkbox", { name: "new connections too" }).check();
  await page.getByRole("row", { name: /allowed/ }).waitFor();
  await page.getByLabel("Filter").fill("ledger isolated");
  same(await page.getByRole("row").count(), 2, "rows after the filter");
});

await check("changes while the page is open", "three", async (page) => {
  const label = (to) => page.locator(`[aria-label="Way between east/node-1 and west/node-2: to west/node-2 ${to}, to east/node-1 up"]`);
  await label("down").waitFor({ state: "attached" });
  await change("way up");
  await label("up").waitFor({ state: "attached" });
  await view(page, "Timeline");
  await page.getByRole("row", { name: /Way east\/node-1 → west\/node-2 down .*up$/ }).waitFor();
  await shot(page, "timeline");
});

await check("dark", "three", async (page) => {
  await way(page, "east/node-2", "north/node-1").focus();
  await page.keyboard.press("Enter");
  await shot(page, "dark");
  await accessible(page, "dark");
}, { scheme: "dark" });

await check("a cluster that is cut off", "cut", async (page) => {
  const labels = await page.locator('[aria-label^="Cluster "]').evaluateAll((all) => all.map((e) => e.getAttribute("aria-label")).sort());
  same(labels, ["Cluster east: Ready", "Cluster north, leader: no context", "Cluster south: access refused", "Cluster west: no answer"], "clusters");
  same(await page.locator(".cluster.ok").count(), 1, "boxes that are good");
  await way(page, "east/node-1", "west/node-1").focus();
  await page.keyboard.press("Enter");
  const text = await panel(page).innerText();
  must(text.includes("The API server of west does not answer; the last report was Up."), `the panel of the way: ${text}`);
  await shot(page, "cut");
  await page.getByRole("button", { name: /^Cluster south:/ }).click();
  must((await panel(page).innerText()).includes("kubectl --context south get --raw /readyz"), "the panel lacks the command");
});

await check("names with markup", "hostile", async (page) => {
  for (const name of ["Map", "Services", "Nodes", "Drops", "Timeline"]) {
    await view(page, name);
    const buttons = page.locator('main [role="button"], main .tr.pick');
    if (name === "Drops") await buttons.first().waitFor();
    const n = Math.min(await buttons.count(), 20);
    must(name === "Timeline" || n > 0, `${name} has nothing to open`);
    for (let i = 0; i < n; i++) {
      await buttons.nth(i).focus();
      await page.keyboard.press("Enter");
      must((await title(page)).length > 0, "a panel without a title");
    }
    if (name === "Map") await shot(page, "hostile");
    if (name === "Drops") {
      const command = await panel(page).locator(".command code").last().textContent();
      for (const [question, answer] of [["Which rules decide?", /^isolated by NetworkPolicy/], ["Which path does it take?", /^dropped at Node west/]]) {
        await page.getByRole("button", { name: question }).click();
        await panel(page).getByText(answer).waitFor();
      }
      must(command.endsWith(` --to 'pay/ledger'\\''; touch owned; #'`), `the command is not quoted: ${command}`);
    }
    await page.getByRole("searchbox").fill("img");
    await page.getByRole("searchbox").fill("");
  }
  const seen = await page.evaluate(() => ({
    title: document.title,
    images: document.querySelectorAll("img").length,
    scripts: document.querySelectorAll("script").length,
  }));
  same(seen, { title: "Tombolo map", images: 1, scripts: 1 }, "the document");
});

await check("no cluster", "empty", async (page) => {
  must((await page.locator("main").innerText()).includes("Start tombolo ui with --context"), "the empty page lacks the remedy");
});

await check("100 clusters", "many", async (page) => {
  await page.locator(".spoke").nth(99).waitFor();
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  must(elements < 3000, `the map has ${elements} elements`);
  await shot(page, "many");
  await page.locator('[aria-label^="Ways between cluster-008 and cluster-010"]').focus();
  await page.keyboard.press("Enter");
  await panel(page).getByText("256 ways").waitFor();
  await panel(page).getByRole("button", { name: "cluster-008/node-2 – cluster-010/node-3" }).click();
  await panel(page).getByText("down in one direction").waitFor();
  await shot(page, "many-way");
  await page.getByRole("button", { name: /^Cluster cluster-055:/ }).focus();
  await page.keyboard.press("Enter");
  same(await title(page), "cluster-055", "title");
  await accessible(page, "100 clusters");
  await view(page, "Nodes");
  await page.keyboard.press("Escape");
  await page.getByRole("row").nth(1).focus();
  await page.keyboard.press("End");
  await page.waitForFunction(() => document.activeElement?.textContent?.includes("cluster-100"));
  const rows = await page.getByRole("row").count();
  must(rows < 100, `${rows} rows are drawn`);
});

await check("the server ends", "ends", async (page) => {
  await change("end");
  await page.getByRole("alert").getByText("tombolo ui does not answer").waitFor();
  must(await page.locator(".app.stale").count(), "the states are shown as those of now");
}, { errors: ["ERR_"] });

await check("a page without a token", "bare", async (page) => {
  await page.getByText("Open the URL that tombolo ui printed").waitFor();
}, { errors: ["401"] });

await check("the picture of the README", "three", async (page) => {
  await way(page, "east/node-1", "west/node-1").waitFor();
  await page.locator(".age").evaluate((e) => e.remove());
  await page.screenshot({ path: join(shots, "map.png") });
}, { width: 1200, height: 620 });

await browser.close();
print({ name: "end", ok: true });
process.exit(0);
