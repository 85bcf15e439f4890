// The page of a plan (`moesim report --plan`) and of a run among all layouts of its task (`--around`): choices and map
// stand under the answer, a click opens a layout, and what is shown outlives the run.
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {check, equal, finish, folder, moesim, ok, open, small} from './harness.mjs';

const request = {name: 'small', ...small};
const run = {
  ...request,
  name: 'mine-of-all',
  training: {...request.training, micro_batch_size: 1},
  layout: {tp: 4, cp: 1, pp: 2, vpp: 1},
  options: {recompute: {granularity: 'full', method: 'uniform', num_layers: 1}},
};
const written = (name, what) => {
  const file = join(folder, name);
  writeFileSync(file, JSON.stringify(what));
  return file;
};
async function report(name, ...args) {
  const file = join(folder, name),
    r = await moesim('report', '--html', file, '--no-validation', ...args);
  if (r.status !== 0) throw new Error(`moesim report ${args}: ${r.status} ${r.stderr}`);
  return `file://${file}`;
}
const plan = await report('plan.html', '--plan', written('request.json', request)),
  around = await report('around.html', '--around', written('run.json', run)),
  answer = JSON.parse((await moesim('plan', '--json', '--map', join(folder, 'request.json'))).stdout);
const info = page => page.locator('#layouts-info').innerText();
/* Points at the layout of that name, then clicks where it stands on the canvas: a corner of what is said of it is 14
 * pixels away, on the side that has room. */
async function pick(page, name) {
  await page.locator('#layouts').scrollIntoViewIfNeeded();
  await page.waitForTimeout(600); /* scrolling hides what is shown of a point */
  await page.locator(`#layouts button[title="Point at ${name} on the map"]`).click();
  ok((await info(page)).startsWith(`${name}: `), await info(page));
  const tip = await page.locator('#tip').boundingBox(),
    canvas = page.locator('#layouts canvas'),
    b = await canvas.boundingBox();
  for (const x of [tip.x - 14, tip.x + tip.width + 14])
    for (const y of [tip.y - 14, tip.y + tip.height + 14]) {
      if (x < b.x || x > b.x + b.width || y < b.y || y > b.y + b.height) continue;
      await page.mouse.click(x, y);
      if ((await info(page)).startsWith(`${name}: `)) return;
    }
  throw new Error(`${name} is not found on the map`);
}

for (const width of [1280, 390])
  await check(`choices and map stand under the answer at ${width} pixels`, async () => {
    const page = await open(plan, {width});
    const order = await page.locator('main > section').evaluateAll(list => list.map(n => n.id));
    equal(order.slice(0, 3).join(), 'summary,choices,layouts', 'order');
    const said = await page.locator('#choices').innerText();
    ok(said.includes(`${Math.round(answer.best[0].tokens_per_s_per_gpu).toLocaleString('en-US')}`), said);
    equal(await page.locator('#choices tbody tr').count(), answer.choices.list.length, 'choices');
    equal(await page.locator('#runs option').count() || 1, answer.choices.list.length, 'runs of the page');
    const counted = Number(/([\d,]+) layouts/.exec(await info(page))[1].replaceAll(',', ''));
    equal(counted, answer.map.layouts, 'layouts');
    ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');
    equal(page.complaints.join('; '), '', 'complaints');
    equal(page.asked.filter(u => !u.startsWith('file:') && !u.startsWith('data:')).join(' '), '', 'network');
    await page.close();
  });

await check('points answer to the keyboard, and say what differs from the best', async () => {
  const page = await open(plan),
    canvas = page.locator('#layouts canvas');
  await canvas.scrollIntoViewIfNeeded();
  await canvas.focus();
  await page.waitForTimeout(600); /* scrolling hides what is shown of a point */
  for (let i = 0; i < 12; i++) await page.keyboard.press('ArrowRight');
  ok(/Differs from the best in .*\(best: /.test(await info(page)), await info(page));
  ok(await page.locator('#tip').isVisible(), 'a point shows what it is');
  await page.close();
});

await check('one opens the winner and its own run from the map', async () => {
  const page = await open(around);
  equal(await page.locator('h1').innerText(), 'mine-of-all', 'its own run comes first');
  const canvas = page.locator('#layouts canvas');
  await pick(page, 'best');
  ok((await page.locator('h1').innerText()).startsWith('1: fastest'), await page.locator('h1').innerText());
  ok(await canvas.isVisible(), 'the map stays');
  ok((await info(page)).includes('The best'), await info(page));
  await pick(page, 'mine');
  equal(await page.locator('h1').innerText(), 'mine-of-all', 'back');
  ok(/Differs from the best in .*options\.recompute full/.test(await info(page)), await info(page));
  ok((await page.locator('#compare th').count()) >= 3, 'side by side');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('a choice of the table is shown', async () => {
  const page = await open(around);
  await page.locator('#choices button').first().click();
  ok((await page.locator('h1').innerText()).startsWith('1: '), await page.locator('h1').innerText());
  await page.close();
});

await check('several plans stand in a table, and each shows its choices, its map and its winner', async () => {
  const batches = {...request, name: 'batches', training: {...request.training, global_batch_size: [16, 32]}},
    page = await open(await report('batches.html', '--plan', written('batches.json', batches)));
  const rows = page.locator('#cells tbody tr'),
    head = () => page.locator('#summary').innerText();
  equal(await rows.count(), 2, 'plans');
  equal(await page.locator('#runs option').count(), 2, 'their winners');
  const first = await head();
  await page.locator('#cells button[aria-label="Look at plan 2"]').click();
  ok(/below/.test(await rows.nth(1).innerText()), 'the second is looked at');
  ok((await head()) !== first, 'its winner is shown');
  equal(await page.locator('#layouts').count(), 1, 'maps');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('what fits nothing makes no page', async () => {
  const file = written('large.json', {...request, model: 'llama3-70b', gpus: 1}),
    r = await moesim('report', '--html', join(folder, 'none.html'), '--plan', file);
  equal(r.status, 1, 'status');
  ok(/nothing fits/.test(r.stderr), r.stderr);
});

await finish();
