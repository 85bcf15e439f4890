// mk/page-picture.mjs PAGE.html OUT.png [SECTION…] - a picture of the page, or of some of its sections one below
// the other. Part of `make plots`.
import {chromium} from '../tests/browser/node_modules/playwright-core/index.mjs';
import {resolve} from 'node:path';

const [file, out, ...sections] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});
const page = await browser.newPage({bypassCSP: true, viewport: {width: 1100, height: 800}});
await page.goto(`file://${resolve(file)}`);
await page.waitForFunction(() => document.documentElement.dataset.ready);
const shown = sections.map(s => `#${s}`).join(', ');
await page.addStyleTag({
  content:
    '.top, .sections, .foot, .controls { display: none !important } ' +
    (shown ? `main > section:not(${shown}) { display: none }` : ''),
});
await page.locator('main').screenshot({path: out});
await browser.close();
