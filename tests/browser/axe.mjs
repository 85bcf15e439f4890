// The page of `moesim report` and that of `moesim serve` under axe-core's rules, and under their own
// Content-Security-Policy. Needs axe-core (./bootstrap --tests); says so and passes without.
import {existsSync, readFileSync} from 'node:fs';
import {join} from 'node:path';
import {spawn} from 'node:child_process';
import {check, equal, finish, folder, moesim, ok, open} from './harness.mjs';

const rules = new URL('node_modules/axe-core/axe.min.js', import.meta.url).pathname;
const axe = existsSync(rules) ? readFileSync(rules, 'utf8') : null;
if (!axe) console.log('skipped: no axe-core');

async function findings(page) {
  await page.evaluate(axe);
  const {violations} = await page.evaluate(() => globalThis.axe.run(document, {resultTypes: ['violations']}));
  return violations.map(v => `${v.id}: ${v.nodes.map(n => `${n.target} ${n.failureSummary}`).slice(0, 3)}`).join('\n');
}

async function report(name, ...args) {
  const to = join(folder, name),
    written = await moesim('report', '--html', to, ...args);
  if (written.status !== 0) throw new Error(written.stderr);
  return to;
}
const run = 'scenarios/run-llama3-70b-h100-64.json',
  file = await report('page.html', 'scenarios/run-deepseek-v3-gb200-256.json');

await check('the report lets nothing run but its own script', async () => {
  const page = await open(`file://${file}`);
  equal(page.complaints.join('; '), '', 'complaints');
  const policy = await page.locator('meta[http-equiv="Content-Security-Policy"]').getAttribute('content');
  ok(policy.startsWith("default-src 'none'") && !policy.includes('unsafe'), policy);
  const ran = await page.evaluate(() => {
    const script = document.createElement('script'),
      image = document.createElement('img');
    script.textContent = 'globalThis.intruder = 1';
    image.setAttribute('onerror', 'globalThis.intruder = 2');
    image.src = 'data:,';
    document.body.append(script, image);
    return new Promise(done => setTimeout(() => done(globalThis.intruder), 100));
  });
  equal(ran, undefined, 'a script from elsewhere');
  await page.close();
});

if (axe) {
  for (const colorScheme of ['light', 'dark'])
    for (const width of [1280, 390])
      await check(`the report has no findings of axe, ${colorScheme}, ${width} pixels`, async () => {
        const page = await open(`file://${file}`, {width, colorScheme});
        equal(await findings(page), '', 'findings');
        await page.close();
      });

  const trace = join(folder, 'trace.json');
  await moesim('run', run, '--trace', trace, '--like', 'kineto');
  const others = {
    'of a run among all layouts': await report('around.html', '--no-validation', '--around', run),
    'of a run, its profile and a study': await report(
      'two.html',
      '--no-validation',
      '--whatif',
      'scenarios/whatif/nic.json',
      run,
      trace,
    ),
  };
  for (const [name, path] of Object.entries(others))
    await check(`the page ${name} has no findings of axe`, async () => {
      const page = await open(`file://${path}`);
      equal(await findings(page), '', 'findings');
      await page.close();
    });

  const server = spawn('moesim', ['serve', '--port', '0'], {stdio: ['ignore', 'pipe', 'pipe']});
  const url = await new Promise((found, failed) => {
    let text = '';
    const look = data => {
      text += data;
      const m = text.match(/http:\/\/\S+/);
      if (m) found(m[0]);
    };
    server.stdout.on('data', look);
    server.stderr.on('data', look);
    server.on('exit', () => failed(new Error(`moesim serve: ${text}`)));
  });
  for (const colorScheme of ['light', 'dark'])
    await check(`the server's page has no findings of axe, ${colorScheme}`, async () => {
      const page = await open(url, {colorScheme});
      equal(page.complaints.join('; '), '', 'complaints');
      equal(await findings(page), '', 'findings');
      await page.locator('#live-model').fill('llama3-8b');
      await page.locator('#live-machine').fill('h100-sxm');
      await page.locator('#live-gpus').fill('8');
      await page.locator('#live-gpus').blur();
      await page.waitForFunction(() => /"llama3-8b"[^]*"gpus": 8/.test(document.querySelector('#live-request').value));
      await page.locator('#live-search').click();
      await page.locator('button[aria-label="Show layout 1"]').click();
      await page.locator('#timeline canvas').first().waitFor();
      equal(await findings(page), '', 'findings after a plan');
      await page.close();
    });
  server.kill();
}

await finish();
