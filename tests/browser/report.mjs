// The page of `moesim report` in a real browser: draws without complaint, offline, answers to pointer and keyboard,
// fits its window, in light and dark.
import {readFileSync, statSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {check, equal, finish, folder, moesim, ok, open} from './harness.mjs';

const nasty = `</script><script>document.title='broken'</script><!-- <script> & "quotes" \u2028`;
async function report(name, ...args) {
  const file = join(folder, name),
    r = await moesim('report', '--html', file, ...args);
  if (r.status !== 0) throw new Error(`moesim report ${args}: ${r.status} ${r.stderr}`);
  return file;
}
const at = file => `file://${file}`;
const tip = page => page.locator('#tip');
const luminance = rgb => {
  const [r, g, b] = rgb.match(/\d+/g).map(Number);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = page => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
const pixels = canvas => canvas.evaluate(node => node.toDataURL());

const small = await report('small.html', 'scenarios/run-deepseek-v3-gb200-256.json');
const large = await report('large.html', '--no-validation', 'scenarios/run-deepseek-v3-2048-pp16.json');

await check('a 2048-GPU page is below 5 MB', async () => {
  const size = statSync(large).size,
    page = await open(at(large));
  ok(size < 5e6, `${size} bytes`);
  console.log(
    `2048 GPUs: ${(size / 1e6).toFixed(2)} MB, interactive after ` +
    `${await page.evaluate(() => document.documentElement.dataset.ready)} ms`,
  );
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('of many GPUs 64 talk one by one', async () => {
  const page = await open(at(large)),
    close = page.locator('#traffic .matrices figure').last(),
    title = () => close.locator('figcaption').innerText(),
    all = page.locator('#traffic canvas').first();
  await page.locator('#traffic label select').last().selectOption('10');
  ok((await title()).startsWith('GPU 320–383 one by one'), await title());
  const chosen = await pixels(close.locator('canvas'));
  const box = await all.boundingBox();
  await all.click({position: {x: 60, y: box.height - 26}});
  ok((await title()).startsWith('GPU 1984–2047 one by one'), await title());
  ok((await pixels(close.locator('canvas'))) !== chosen, 'a click changes nothing');
  equal(await page.locator('#traffic label select').last().inputValue(), '63', 'the list follows a click');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

for (const width of [1280, 390])
  for (const colorScheme of ['light', 'dark'])
    await check(`draws at ${width} pixels, ${colorScheme}, offline, without overflow`, async () => {
      const page = await open(at(small), {width, colorScheme});
      equal(page.complaints.join('; '), '', 'complaints');
      equal(page.asked.filter(u => !u.startsWith('file:') && !u.startsWith('data:')).join(' '), '', 'network');
      ok(
        await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth),
        'the page is wider than its window',
      );
      for (const id of [
        'summary',
        'parts',
        'mfu',
        'timeline',
        'overlap',
        'memory',
        'map',
        'traffic',
        'operators',
        'sources',
      ]) {
        const box = await page.locator(`section#${id}`).boundingBox();
        ok(
          box && box.height > 60 && box.x >= 0 && box.x + box.width <= width,
          `section ${id} stands at ${JSON.stringify(box)}`,
        );
      }
      ok(
        luminance(await background(page)) > 128 === (colorScheme === 'light'),
        'background does not follow the system',
      );
      const sizes = await page.evaluate(() =>
        [...document.querySelectorAll('main p, main td, main .s')].map(n => parseFloat(getComputedStyle(n).fontSize)),
      );
      ok(Math.min(...sizes) >= 12, `text of ${Math.min(...sizes)} pixels`);
      await page.close();
    });

await check('figures say what the program says', async () => {
  const page = await open(at(small)),
    r = JSON.parse((await moesim('run', '--json', 'scenarios/run-deepseek-v3-gb200-256.json')).stdout);
  const shown = await page.locator('#summary').innerText();
  ok(
    shown.includes(`${(100 * r.mfu).toFixed(1)} %`) &&
      shown.includes(Math.round(r.tokens_per_s_per_gpu).toLocaleString('en-US')),
    shown,
  );
  const data = JSON.parse(await page.locator('#data').textContent()).runs[0];
  equal(data.result.step_time_s, r.step_time_s, 'step time');
  const said = await page.locator('#summary .advice li').allInnerTexts();
  ok(data.advice.length > 0, 'no advice');
  equal(said.join('\n'), data.advice.join('\n').replaceAll('->', '→'), 'advice');
  ok(
    Math.abs(data.result.gap.reduce((s, g) => s + g.mfu_points, 0) - 100) < 1e-6,
    'the waterfall does not add up to 100',
  );
  await page.close();
});

await check('hover shows what lies under the pointer', async () => {
  const page = await open(at(small));
  await page.locator('#parts svg rect[tabindex]').first().hover();
  ok((await tip(page).innerText()).startsWith('GEMM, mean'), await tip(page).innerText());
  const map = page.locator('#map canvas');
  await map.scrollIntoViewIfNeeded();
  await map.hover({position: {x: 8, y: 8}});
  const said = await tip(page).innerText();
  ok(/GPU 0\b/.test(said) && /stage/.test(said) && /experts/.test(said) && /0–63/.test(said), said);
  const line = page.locator('#timeline canvas').first();
  await line.scrollIntoViewIfNeeded();
  const box = await line.boundingBox();
  await line.hover({position: {x: box.width / 2, y: 12}});
  ok(/forward|backward|waits/.test(await tip(page).innerText()), await tip(page).innerText());
  await page.mouse.move(2, 300);
  await page.close();
});

await check('a fabric shows how full its links are', async () => {
  const page = await open(at(await report('fabric.html', '--no-validation', 'scenarios/fabric/slow-ranks.json')));
  equal(page.complaints.join('; '), '', 'complaints');
  const data = JSON.parse(await page.locator('#data').textContent()).runs[0],
    strips = page.locator('#fabric canvas');
  const up = data.links.filter(l => l.tier === 'leaf to spine' && !l.name.endsWith('.in'));
  equal(await strips.count(), 4, 'strips: NICs and uplinks, both ways');
  await strips.nth(1).scrollIntoViewIfNeeded();
  await strips.nth(1).hover({position: {x: 4, y: 4}});
  ok((await tip(page).innerText()).startsWith(up[0].name), await tip(page).innerText());
  equal(await page.locator('#fabric table').last().locator('tbody tr').count(), data.fabric.collectives.length, 'rows');
  await page.close();
  const none = await open(at(small));
  equal(await none.locator('#fabric').count(), 0, 'a machine without a fabric');
  await none.close();
});

await check('keyboard reaches figures and marks', async () => {
  const page = await open(at(small));
  await page.locator('#map canvas').focus();
  for (let i = 0; i < 3; i++) await page.keyboard.press('ArrowRight');
  ok((await tip(page).innerText()).startsWith('GPU 2'), await tip(page).innerText());
  await page.keyboard.press('Escape');
  ok(await tip(page).isHidden(), 'Escape leaves the tooltip');
  const canvas = page.locator('#timeline canvas').first(),
    before = await pixels(canvas);
  await canvas.focus();
  await page.keyboard.press('+');
  ok((await pixels(canvas)) !== before, 'plus does not zoom');
  await page.keyboard.press('0');
  equal(await pixels(canvas), before, 'zoom and back');
  await page.locator('#mfu rect[tabindex]').first().focus();
  ok((await tip(page).innerText()).includes('points of MFU'), await tip(page).innerText());
  const nameless = await page.evaluate(
    () =>
      [...document.querySelectorAll('button, select, canvas, [tabindex="0"]')].filter(
        n => !(n.getAttribute('aria-label') || n.textContent.trim() || n.closest('label')),
      ).length,
  );
  equal(nameless, 0, 'controls without a name');
  await page.close();
});

await check('toggles change what they name', async () => {
  const page = await open(at(small));
  const wasLight = await background(page);
  await page.locator('#theme').click();
  ok(luminance(await background(page)) < 100 && wasLight !== (await background(page)), 'theme does not change');
  await page.locator('#theme').click();
  ok(luminance(await background(page)) > 128, 'theme does not change back');
  const map = page.locator('#map canvas'),
    shards = await pixels(map);
  await page.locator('#map select').first().selectOption('pp');
  ok((await pixels(page.locator('#map canvas'))) !== shards, 'colours of the map do not change');
  const before = await page.locator('#traffic table').innerText();
  await page.locator('#traffic select').first().selectOption('0');
  ok((await page.locator('#traffic table').innerText()) !== before, 'stage of the communication table');
  const matrix = await pixels(page.locator('#traffic canvas').first());
  await page.locator('#traffic .seg button').last().click();
  ok((await pixels(page.locator('#traffic canvas').first())) !== matrix, 'class of the matrix');
  await page.locator('#overlap select').selectOption('0');
  ok(
    (await page.locator('#overlap canvas').first().getAttribute('aria-label')).includes('stage 0'),
    'stage of the streams',
  );
  await page.locator('#memory select').selectOption('2');
  ok(
    (await page.locator('#memory').innerText()).includes('Kept for backward on stage 2'),
    'stage of the kept tensors',
  );
  await page.locator('#operators summary').click();
  await page.locator('#operators table tbody tr').nth(20).waitFor();
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('a resized window draws again, without overflow', async () => {
  const page = await open(at(small));
  await page.setViewportSize({width: 390, height: 800});
  await page.waitForFunction(() => document.querySelector('#parts svg').getBoundingClientRect().width < 390);
  ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');
  await page.close();
});

await check('names cannot break out, several runs compare', async () => {
  const scenario = JSON.parse(readFileSync('scenarios/run-llama3-70b-h100-64.json', 'utf8')),
    file = join(folder, 'nasty.json');
  scenario.name = nasty;
  writeFileSync(file, JSON.stringify(scenario));
  const page = await open(
    at(await report('nasty.html', '--no-validation', file, 'scenarios/run-qwen3-235b-h100-256.json')),
  );
  equal(await page.locator('h1').textContent(), nasty, 'heading');
  ok((await page.title()).startsWith(nasty), await page.title());
  equal(page.complaints.join('; '), '', 'complaints');
  ok((await page.locator('#compare table tbody tr').count()) >= 8, 'comparison');
  const ends = await page.locator('#compare svg').evaluate(picture => {
    const rows = new Map();
    for (const r of picture.querySelectorAll('rect'))
      rows.set(r.getAttribute('y'), Math.max(rows.get(r.getAttribute('y')) || 0,
        Number(r.getAttribute('x')) + Number(r.getAttribute('width'))));
    const ticks = [...picture.querySelectorAll('line')].map(l => Number(l.getAttribute('x1')));
    return [...rows.values()].map(x => x - Math.min(...ticks));
  });
  const steps = await page.evaluate(() => page.runs.map(r => r.result.step_time_s));
  ok(Math.abs(ends[0] / ends[1] / (steps[0] / steps[1]) - 1) < 0.01, `bars ${ends}, steps ${steps}`);
  await page.locator('#runs select').selectOption('1');
  equal(await page.locator('h1').textContent(), 'run-qwen3-235b-h100-256', 'second run');
  await page.close();
});

await check('a step and its trace stand beside each other', async () => {
  const scenario = 'scenarios/run-llama3-70b-h100-64.json',
    trace = join(folder, 'trace.json');
  await moesim('run', scenario, '--trace', trace, '--like', 'kineto');
  const page = await open(at(await report('diff.html', '--no-validation', scenario, trace))),
    d = JSON.parse((await moesim('diff', '--json', scenario, trace)).stdout),
    bars = page.locator('#diff svg rect');
  equal(await bars.count(), 2 * d.classes.length, 'bars');
  const widths = await bars.evaluateAll(list => list.map(n => Number(n.getAttribute('width'))));
  d.classes.forEach((c, i) => {
    ok(Math.abs(widths[2 * i] - widths[2 * i + 1]) < 1, `${c.class}: ${widths[2 * i]} and ${widths[2 * i + 1]}`);
    ok(widths[2 * i] > 0, `${c.class} has no bar`);
  });
  await bars.first().focus();
  ok((await tip(page).innerText()).includes(d.classes[0].class), await tip(page).innerText());
  await page.locator('#diff summary').first().click();
  await page.locator('#diff table tbody tr').first().waitFor(); /* the table is made on the event of opening */
  equal(await page.locator('#diff table tbody tr').count(), d.classes.length, 'rows of the table');
  const lanes = page.locator('#diff canvas'),
    whole = await pixels(lanes);
  await lanes.hover({position: {x: 300, y: 12}});
  ok((await tip(page).innerText()).includes('predicted, stream'), await tip(page).innerText());
  await lanes.focus();
  await page.keyboard.press('+');
  await page.mouse.move(0, 0);
  ok((await pixels(lanes)) !== whole, 'no zoom');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
  const alone = await open(at(await report('traces.html', trace, trace)), {width: 390}); /* nothing predicted */
  equal(await alone.locator('main > section').count(), 1, 'sections');
  equal(alone.complaints.join('; '), '', 'complaints of two traces');
  ok(await alone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');
  await alone.close();
});

await check('a long pipeline opens on warm-up, steady part and drain', async () => {
  const page = await open(at(large)),
    windows = page.locator('#timeline canvas'),
    names = () => page.locator('#timeline h3').allInnerTexts();
  equal((await names()).join(), 'warm-up,steady part,drain', 'windows');
  const first = await pixels(windows.first()),
    inked = await windows.evaluateAll(list =>
      list.map(c => {
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data,
          kinds = ['kind-f', 'kind-b'].map(k => colour(k)),
          at = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));
        return kinds.map(at).map(([r, g, b]) => {
          let n = 0;
          for (let i = 0; i < data.length; i += 4) n += data[i] === r && data[i + 1] === g && data[i + 2] === b;
          return n;
        });
      }),
    );
  ok(inked[0][0] > inked[0][1] && inked[2][1] > 2 * inked[2][0], `forwards warm up, backwards drain: ${inked}`);
  await page.locator('#timeline button[title="Show the whole step"]').click();
  equal(await windows.count(), 1, 'the whole step');
  await page.locator('#timeline button:has-text("phases")').click();
  equal(await pixels(windows.first()), first, 'and back');
  await page.close();
});

await check('thousands of passes are painted where they are', async () => {
  const page = await open(at(small)),
    [early, late, idle, forward, backward] = await page.evaluate(() => {
      const slots = [],
        {ctx} = canvas(1000, 20, 'passes');
      for (let i = 0; i < 4000; i++) slots.push(i < 2000 ? 0 : 1, i, 0, -1, -1, i * 10 + (i < 3000 ? 0 : 10000), 10);
      paintSlots(ctx, slots, 0, 20, t => t * 20000, {from: 0, to: 0.05});
      const rgb = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)).join(),
        seen = x => [...ctx.getImageData(x * (ctx.canvas.width / 1000), 10, 1, 1).data];
      return [seen(200).slice(0, 3).join(), seen(900).slice(0, 3).join(), seen(700)[3], rgb(colour('kind-f')),
        rgb(colour('kind-b'))];
    });
  equal(early, forward, 'forward');
  equal(late, backward, 'backward');
  equal(idle, 0, 'what waits is bare');
  await page.close();
});

await check('printed it is figures alone, on white', async () => {
  const page = await open(at(small), {colorScheme: 'dark', width: 800});
  await page.emulateMedia({media: 'print'});
  await page.evaluate(() => dispatchEvent(new Event('beforeprint')));
  for (const what of ['.top', '.sections', '.controls'])
    ok(!(await page.locator(what).first().isVisible()), `${what} is printed`);
  for (const what of ['#timeline canvas', '#summary'])
    ok(await page.locator(what).first().isVisible(), `${what} is not printed`);
  const [ink, card] = await page.evaluate(() => {
    const style = getComputedStyle(document.querySelector('#summary'));
    return [getComputedStyle(document.querySelector('#summary h1')).color, style.backgroundColor];
  });
  ok(luminance(ink) < 100 && luminance(card) > 200, `${ink} on ${card}`);
  ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');
  await page.evaluate(() => dispatchEvent(new Event('afterprint')));
  await page.emulateMedia({media: 'screen'});
  ok(luminance(await background(page)) < 100, 'and the screen is as it was');
  await page.close();
});

await check('an infeasible run says so', async () => {
  const scenario = JSON.parse(readFileSync('scenarios/run-llama3-70b-h100-64.json', 'utf8')),
    file = join(folder, 'huge.json');
  scenario.training.micro_batch_size = 16;
  writeFileSync(file, JSON.stringify(scenario));
  const page = await open(at(await report('huge.html', '--no-validation', file)));
  ok((await page.locator('[role=alert]').innerText()).startsWith('Does not fit'), 'no warning');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('a what-if study is drawn as curves', async () => {
  const page = await open(
    at(
      await report(
        'whatif.html',
        '--no-validation',
        '--whatif',
        'scenarios/whatif/nic.json',
        '--whatif',
        'scenarios/whatif/ep-etp.json',
        'scenarios/run-llama3-70b-h100-64.json',
      ),
    ),
    {width: 390},
  );
  const study = JSON.parse((await moesim('whatif', '--json', 'scenarios/whatif/nic.json')).stdout),
    points = page.locator('#whatif svg').first().locator('circle');
  equal(await points.count(), study.points.length, 'points');
  await points.first().focus();
  ok((await tip(page).innerText()).includes('against the base'), await tip(page).innerText());
  await page.locator('#whatif summary').first().click();
  await page.locator('#whatif table tbody tr').nth(study.points.length).waitFor();
  equal(page.complaints.join('; '), '', 'complaints');
  ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');
  await page.close();
});

await finish();
