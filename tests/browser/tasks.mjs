// The ten tasks of tests/tasks.sh once more, in a browser: what a new user wants, done on the page of `moesim serve` or
// on a page that the command line wrote.
import {execFileSync, spawn} from 'node:child_process';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {check, equal, finish, folder, moesim, ok, open} from './harness.mjs';

const server = spawn('moesim', ['serve', '--port', '0'], {stdio: ['ignore', 'pipe', 'inherit']}),
  at = await new Promise(done => server.stdout.on('data', d => done(/http:\S+/.exec(d)[0])));
const written = (name, what) => {
  const file = join(folder, name);
  writeFileSync(file, typeof what === 'string' ? what : JSON.stringify(what));
  return file;
};
async function done(...args) {
  const r = await moesim(...args);
  if (r.status !== 0) throw new Error(`moesim ${args.join(' ')}: ${r.status} ${r.stderr}`);
  return r.stdout;
}

/* The form as an address says it, with files of one's own, and the search over. */
async function asked(settings, ...files) {
  const page = await open(`${at}#${new URLSearchParams(settings)}`);
  for (const file of files) {
    const before = await page.locator('#live-request').inputValue();
    await page.locator('#live-file').setInputFiles(file);
    await page.waitForFunction(was => document.querySelector('#live-request').value !== was, before);
  }
  await page.locator('#live-search').click();
  await page.locator('#live-choices, #live-would-fit').first().waitFor();
  return page;
}
const fast = {model: 'llama3-8b', machine: 'h100-sxm', gpus: 16, batch: 128};
const advice = page => page.locator('#live-choices li').allInnerTexts();
async function shown(page) {
  await page.locator('#timeline canvas').first().waitFor();
  equal(page.complaints.join('; '), '', 'complaints');
}
async function opened(file) {
  const page = await open(`file://${file}`);
  equal(page.complaints.join('; '), '', 'complaints');
  return page;
}

await check('layout: from a cluster of my own to a launch script', async () => {
  const own = written('my-cluster.json', {base: 'h100-sxm', nic_Bps: '200Gb/s', gpus_per_node: 4,
    nvlink_domain_gpus: 4});
  const page = await asked(fast, own);
  ok(/^Take 1, .* a step/.test((await advice(page))[0]), 'the answer comes first');
  await page.locator('#plan button[aria-label="launch layout 1"]').click();
  await page.locator('#plan label:has-text("Launched by") select').selectOption('slurm');
  await page.waitForFunction(() => /#SBATCH/.test(document.querySelector('#plan pre.flags')?.innerText));
  ok(/--tensor-model-parallel-size/.test(await page.locator('#plan pre.flags').innerText()), 'arguments');
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('fit: what does not fit says what would, and shows it', async () => {
  const page = await asked({...fast, model: 'llama3-70b', gpus: 8, batch: 64});
  ok(/No layout fits\. These would/.test(await page.locator('#live-would-fit').innerText()), 'ways');
  await page.locator('#live-would-fit button[title^="Show what fits"]').first().click();
  await shown(page);
  ok(/GiB/.test(await page.locator('#memory').innerText()), 'memory of the stages');
  await page.close();
});

await check('buy: days, price and energy stand beside every choice', async () => {
  const page = await asked({...fast, tokens: '1T', deadline: '90d', gpu_hour: '2.50', max_watts: '20kW'});
  const head = await page.locator('#live-choices thead').innerText(),
    first = await page.locator('#live-choices tbody tr').first().innerText();
  ok(/days.*price.*MWh.*tCO2e/s.test(head) && /of 90/.test(first), `${head} ${first}`);
  const cut = await page.locator('#live-choices .scroll').first().evaluate(e => e.scrollWidth - e.clientWidth);
  equal(cut, 0, 'pixels of the choices behind the edge');
  ok((await advice(page)).some(s => /of the 90 days/.test(s)), 'the deadline is answered');
  await page.close();
});

await check('slow: sliders answer while they are dragged, and none does nothing', async () => {
  const page = await asked(fast);
  await page.locator('#live-choices button[title="Show choice 1"], #live-choices button').first().click();
  await shown(page);
  const sliders = page.locator('#sliders input[type=range]');
  await sliders.first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll('#sliders input').length >= 3);
  const answer = page.locator('#sliders-answer table');
  for (let i = 0; i < (await sliders.count()); i++) {
    const slider = sliders.nth(i);
    await slider.focus();
    await page.keyboard.press((await slider.getAttribute('aria-label')).startsWith('GPUs') ? 'End' : 'Home');
    await answer.waitFor();
    await page.waitForFunction(
      () => /[−+]\d*[1-9]|does not fit/.test(document.querySelector('#sliders-answer').innerText) ||
        document.querySelector('#sliders-answer p'),
    );
    await slider.fill('0');
  }
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

await check('script: my launch script among all layouts', async () => {
  const script = written('train.sh',
    'torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 4 ' +
    '--pipeline-model-parallel-size 1 --sequence-parallel --use-distributed-optimizer --bf16 --micro-batch-size 1 ' +
    '--global-batch-size 128 --seq-length 4096 --max-position-embeddings 4096 --num-layers 16 --hidden-size 4096 ' +
    '--ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --swiglu ' +
    '--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights ' +
    '--position-embedding-type rope --vocab-size 128256\n');
  const run = join(folder, 'my-run.json'), file = join(folder, 'mine.html');
  await done('import', 'megatron', script, '--hardware', 'h100-sxm', '--out', run);
  await done('report', '--no-validation', '--around', run, '--html', file);
  const page = await opened(file);
  ok(await page.locator('#layouts button[title="Point at mine on the map"]').isVisible(), 'mine is on the map');
  ok(/layouts.*\d % of them fit/.test(await page.locator('#layouts-info').innerText()), 'all are counted');
  await page.close();
});

await check('script: my run beside the winner, with what differs', async () => {
  const mine = {schema: 1, name: 'mine', model: 'llama3-8b', hardware: 'h100-sxm', gpus: 16,
    training: {seq_length: 4096, global_batch_size: 128}, layout: {tp: 8, pp: 2}};
  const page = await asked(fast);
  await page.locator('#live-file').setInputFiles(written('mine-too.json', mine));
  await shown(page);
  const said = await page.locator('#compare').innerText();
  ok(/What differs in them/.test(said) && /layout\.tp\s+8\s/.test(said), said);
  ok(await page.locator('#layouts button[title="Point at mine on the map"]').isVisible(), 'mine is on the map');
  await page.close();
});

await check('gpu: a GPU that nobody knows, by its file', async () => {
  const page = await asked(fast, written('my-gpu.json', {
    schema: 1, name: 'my-gpu', curves_from: 'h100-sxm', peak_bf16_flops: '500TFLOP/s', hbm_B: '96GiB',
    hbm_Bps: '4TB/s', gpus_per_node: 8, nvlink_domain_gpus: 8, scaleup_Bps: '200GB/s', nic_Bps: '200Gb/s'}));
  await page.locator('#live-choices button').first().click();
  await shown(page);
  for (const card of ['#live-choices', '#summary'])
    ok(/no published runs compared/.test(await page.locator(card).innerText()), `the caveat is said in ${card}`);
  await page.close();
});

await check('model: a model of my own', async () => {
  const page = await asked(fast, written('mine.json', {base: 'llama3-8b', num_layers: 12, name: 'half'}));
  ok(/"num_layers": 12/.test(await page.locator('#live-request').inputValue()), 'the request has it');
  ok(/^Take 1/.test((await advice(page))[0]), 'and is planned');
  await page.close();
});

await check('ci: what moved stands side by side', async () => {
  const request = {base: 'llama3-8b', num_layers: 8};
  const before = {schema: 1, name: 'before', model: request, hardware: 'h100-sxm', gpus: 8,
    training: {seq_length: 4096, global_batch_size: 32}, layout: {tp: 2}};
  const file = join(folder, 'moved.html');
  await done('report', '--no-validation', written('before.json', before),
    written('after.json', {...before, name: 'after', layout: {tp: 4}}), '--html', file);
  const page = await opened(file);
  ok(/before/.test(await page.locator('#compare').innerText()) && /%/.test(await page.locator('#compare').innerText()),
    'differences');
  await page.close();
});

await check('python: the page that a notebook keeps', async () => {
  let python = true;
  try {
    execFileSync('python3', ['-c', 'import moesim'], {stdio: 'ignore'});
  } catch (e) {
    python = false; /* tests/python.sh says what is missing */
  }
  if (!python) return;
  const file = join(folder, 'notebook.html');
  execFileSync('python3', ['-c',
    `import moesim; moesim.page("scenarios/run-llama3-70b-h100-64.json").save(${JSON.stringify(file)})`]);
  const page = await opened(file);
  ok(/run-llama3-70b-h100-64/.test(await page.locator('h1').innerText()), 'the run');
  await page.close();
});

await check('share: one page without a network, and an address that says what was asked', async () => {
  const page = await asked({...fast, sequence: 8192}),
    again = await open(page.url());
  await again.waitForFunction(() => document.querySelector('#live-request').value);
  equal(await again.locator('#live-request').inputValue(), await page.locator('#live-request').inputValue(), 'request');
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.locator('button[aria-label="Download the page of layout 1"]').click(),
  ]);
  const kept = join(folder, 'kept.html');
  await download.saveAs(kept);
  const alone = await opened(kept);
  equal(alone.asked.filter(u => !u.startsWith('file:') && !u.startsWith('data:')).join(' '), '', 'network');
  await again.close();
  await alone.close();
  await page.close();
});

server.kill('SIGTERM');
await finish();
