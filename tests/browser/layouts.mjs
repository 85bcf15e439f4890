// The map of all layouts on the page of `moesim serve`: drawn under the answer, with hover, click, selection and
// filter, by pointer and by keyboard; it stays when a layout is shown.
import {spawn} from 'node:child_process';
import {check, equal, finish, ok, open, small} from './harness.mjs';

const server = spawn('moesim', ['serve', '--port', '0'], {stdio: ['ignore', 'pipe', 'inherit']}),
  at = await new Promise(done => server.stdout.on('data', d => done(/http:\S+/.exec(d)[0])));
const request = {name: 'map', ...small};
async function searched(options) {
  const page = await open(at, options);
  await page.locator('#live-search').waitFor();
  await page.locator('#plan summary').click();
  await page.locator('#live-request').fill(JSON.stringify(request));
  await page.locator('#live-search').click();
  await page.locator('#layouts canvas').waitFor();
  return page;
}
const info = page => page.locator('#layouts-info').innerText();
const counted = async page => Number(/([\d,]+) layouts/.exec(await info(page))[1].replaceAll(',', ''));
const picture = page => page.locator('#layouts canvas').evaluate(node => node.toDataURL());

for (const width of [1280, 390])
  await check(`the map is drawn, answers and selects at ${width} pixels`, async () => {
    const page = await searched({width, colorScheme: width > 800 ? 'light' : 'dark'}),
      canvas = page.locator('#layouts canvas');
    const all = await counted(page),
      box = await canvas.boundingBox(),
      plain = await picture(page);
    ok(all > 50, `${all} layouts`);
    ok(box.x >= 0 && box.x + box.width <= width && box.height > 200, JSON.stringify(box));
    ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');

    const advice = await page.locator('#live-choices li').allInnerTexts();
    ok(/^Take 1, .* a step .* tokens\/s\/GPU/.test(advice[0]), advice.join(' | '));
    ok((await page.locator('#live-choices tbody tr').count()) >= 1, 'choices');

    await canvas.scrollIntoViewIfNeeded();
    await canvas.focus();
    await page.waitForTimeout(600); /* scrolling hides what is shown of a point */
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('ArrowRight');
    const first = await info(page);
    ok(/GiB.*TP \d/s.test(first), first);
    ok(await page.locator('#tip').isVisible(), 'a point shows what it is');
    ok((await picture(page)) !== plain, 'the point is marked');

    await canvas.scrollIntoViewIfNeeded();
    const b = await canvas.boundingBox();
    await page.mouse.move(b.x + 70, b.y + 10);
    await page.mouse.down();
    await page.mouse.move(b.x + b.width / 2, b.y + b.height / 2, {steps: 4});
    await page.mouse.up();
    const selected = await counted(page);
    ok(selected < all && /selected/.test(await info(page)), `${selected} of ${all} selected`);
    await page.locator('#layouts button[title="Take the selection back"]').click();
    equal(await counted(page), all, 'taken back');

    await page.locator('#layouts label:has-text("Only") select').selectOption('layout.tp');
    await page.locator('#layouts select[aria-label="Value"]').selectOption('2');
    const two = await counted(page);
    ok(two > 0 && two < all, `${two} with TP 2 of ${all}`);
    const before = await picture(page);
    await page.locator('#layouts label:has-text("Colour") select').selectOption('layout.tp');
    ok((await picture(page)) !== before, 'colours follow the key');
    await page.locator('#layouts summary').click();
    await page.locator('#layouts tbody tr').first().waitFor(); /* the table is made on the event of opening */
    ok((await page.locator('#layouts tbody tr').count()) >= 3, 'a row for each TP');
    const heading = () => page.locator('#layouts thead th').first().innerText();
    equal(await heading(), 'TP', 'the table is by the key of the colours');
    await page.locator('#layouts label:has-text("Colour") select').selectOption('layout.cp');
    equal(await heading(), 'CP', 'and follows it');

    await canvas.focus();
    await page.keyboard.press('ArrowRight');
    await page.locator('#layouts-info button[title="Show this layout"]').click();
    await page.locator('#timeline canvas').first().waitFor();
    ok(/TP 2|tp 2/.test(await page.locator('main').innerText()), 'the layout is the one that was asked for');
    ok(await canvas.isVisible(), 'the map stays');
    equal(page.complaints.join('; '), '', 'complaints');
    ok(page.asked.every(u => u.startsWith(at) || u.startsWith('data:')), page.asked.join(' '));
    await page.close();
  });

await check('several batches are several plans, one of them below the table, and the address keeps them', async () => {
  const page = await open(`${at}#model=llama3-8b&machine=h100-sxm&gpus=8&sequence=4k&batch=128,256`);
  const asked = JSON.parse(await page.locator('#live-request').inputValue());
  equal(JSON.stringify(asked.training.global_batch_size), '[128,256]', 'batches');
  equal(asked.training.seq_length, 4096, 'tokens');
  await page.locator('#live-search').click();
  await page.locator('#layouts canvas').waitFor();
  const row = i => page.locator('#cells tbody tr').nth(i).innerText(),
    tokens = () => page.locator('#live-choices tbody tr').first().innerText();
  ok(/128\s.* s\s/.test(await row(0)) && /256\s.* s\s/.test(await row(1)), `${await row(0)} | ${await row(1)}`);
  ok(/below/.test(await row(0)), 'the first is shown');
  const first = await tokens();
  await page.locator('#cells button[aria-label="Look at plan 2"]').click();
  ok(/below/.test(await row(1)) && (await tokens()) !== first, 'the second is shown');
  equal(await page.locator('#layouts').count(), 1, 'maps');
  ok(/layouts looked at/.test(await page.locator('#plan .note[role=status]').innerText()), 'what was looked at');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('a run of mine is planned around: the winner beside it, and it on the map', async () => {
  const page = await open(at),
    mine = {schema: 1, name: 'mine', model: small.model, hardware: 'h100-sxm', gpus: 8,
      training: {seq_length: 4096, global_batch_size: 32}, layout: {tp: 4, pp: 2}};
  equal(await page.locator('#live-around').isVisible(), false, 'nothing to plan around yet');
  await page.locator('#live-file').setInputFiles({name: 'mine.json', mimeType: 'application/json',
    buffer: Buffer.from(JSON.stringify(mine))});
  await page.locator('#timeline canvas').first().waitFor();
  await page.locator('#live-around').click();
  await page.locator('#layouts button[title="Point at mine on the map"]').waitFor();
  const asked = JSON.parse(await page.locator('#live-request').inputValue());
  equal(asked.training.global_batch_size, 32, 'its batch');
  ok(/What differs in them/.test(await page.locator('#compare').innerText()), 'both are compared');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('a search that fits nothing has no map', async () => {
  const page = await open(at);
  await page.locator('#plan summary').click();
  await page.locator('#live-request').fill(
    JSON.stringify({...request, model: 'llama3-70b', gpus: 1, training: {...request.training, micro_batch_size: 1}}),
  );
  await page.locator('#live-search').click();
  await page.locator('#plan >> text=No layout fits').waitFor();
  equal(await page.locator('#layouts').count(), 0, 'maps');
  await page.close();
});

server.kill('SIGTERM');
await finish();
