// bench/page_frames.mjs MOESIM: the timeline of a page of 100,000 passes in headless Chromium. Milliseconds of painting
// it once, and between frames, while it is moved and pointed at: whole, zoomed in by 4 and by 20 steps. 60 frames a
// second are 16.7 ms.
import {chromium} from '../tests/browser/node_modules/playwright-core/index.mjs';
import {execFileSync} from 'node:child_process';
import {mkdtempSync, readFileSync, rmSync, writeFileSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {join} from 'node:path';

if (!process.argv[2]) {
  console.error('usage: node bench/page_frames.mjs build/moesim');
  process.exit(2);
}
const room = mkdtempSync(join(tmpdir(), 'moesim-frames-')),
  file = join(room, 'many.html'),
  scenario = JSON.parse(readFileSync(new URL('../scenarios/run-deepseek-v3-2048-pp16.json', import.meta.url)));
scenario.training.global_batch_size = 400000; /* 3125 microbatches, forward and backward, on 16 stages */
writeFileSync(join(room, 'many.json'), JSON.stringify(scenario));
execFileSync(process.argv[2], ['report', '--no-validation', join(room, 'many.json'), '--html', file]);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});
const tab = await browser.newPage({viewport: {width: 1280, height: 900}});
await tab.goto(`file://${file}`);
await tab.waitForFunction(() => document.documentElement.dataset.ready);
await tab.locator('#timeline button[title="Show the whole step"]').click();
const rows = await tab.evaluate(async () => {
  const node = document.querySelector('#timeline canvas'),
    press = key => node.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true})),
    frame = () => new Promise(done => requestAnimationFrame(done)),
    middle = list => [...list].sort((a, b) => a - b)[list.length >> 1],
    rows = [{slices: page.runs[0].passes.reduce((n, p) => n + p.slots.length / 7, 0)}];
  node.scrollIntoView({behavior: 'instant'});
  await new Promise(done => setTimeout(done, 2000)); /* what loading and scrolling set off is over */
  for (const zoom of [0, 4, 16]) {
    for (let i = 0; i < zoom; i++) press('+');
    const paint = [],
      frames = [];
    for (let i = 0, last = await frame(); i < 120; i++) {
      const start = performance.now();
      press(i % 2 ? 'ArrowLeft' : 'ArrowRight');
      paint.push(performance.now() - start);
      const clientY = node.getBoundingClientRect().top + 50;
      node.dispatchEvent(new PointerEvent('pointermove', {clientX: 400 + i, clientY, bubbles: true}));
      const now = await frame();
      frames.push(now - last);
      last = now;
    }
    rows.push({steps: zoom, paint: middle(paint).toFixed(1), frame: middle(frames).toFixed(1)});
  }
  return rows;
});
for (const row of rows) console.log(JSON.stringify(row));
await browser.close();
rmSync(room, {recursive: true});
