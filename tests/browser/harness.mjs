// tests/browser/harness.mjs - a browser, pages whose errors count, and a list of checks. Prints "N passed, M failed"
// as its last line.
import {chromium} from 'playwright-core';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {execFile} from 'node:child_process';

export const folder = mkdtempSync(join(tmpdir(), 'moesim-browser-'));
process.on('exit', () => rmSync(folder, {recursive: true, force: true}));

let passed = 0,
  failed = 0;
export async function check(name, body) {
  try {
    await body();
    passed++;
  } catch (e) {
    failed++;
    console.log(`FAILED ${name}: ${e.stack || e}`);
  }
}
export function equal(got, want, what) {
  if (got !== want) throw new Error(`${what}: ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
}
export function ok(condition, what) {
  if (!condition) throw new Error(what);
}

// A request whose layouts are all simulated in a moment.
export const small = {
  model: {base: 'llama3-8b', num_layers: 8},
  hardware: 'h100-sxm',
  gpus: 8,
  training: {seq_length: 4096, global_batch_size: 32, micro_batch_size: [1, 2, 4]},
  layout: {cp: [1, 2], vpp: 1},
  options: {recompute: 'auto'},
};

export const moesim = (...args) =>
  new Promise(resolve =>
    execFile('moesim', args, {maxBuffer: 64 << 20}, (error, stdout, stderr) =>
      resolve({status: error ? error.code : 0, stdout, stderr}),
    ),
  );

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});

// A page with everything it complained about, and every address it asked for.
export async function open(url, {width = 1280, height = 900, colorScheme = 'light'} = {}) {
  const page = await browser.newPage({viewport: {width, height}, colorScheme});
  page.setDefaultTimeout(120000); /* against hanging, not a measure: the machine may be busy */
  page.complaints = [];
  page.asked = [];
  page.on('console', m => {
    if (m.type() === 'error' || m.type() === 'warning') page.complaints.push(m.text());
  });
  page.on('pageerror', e => page.complaints.push(String(e)));
  page.on('request', r => page.asked.push(r.url()));
  await page.goto(url);
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  return page;
}

export async function finish() {
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
}
