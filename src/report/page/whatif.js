/* whatif.js - with `moesim serve`: sliders over the run that is shown; each position is simulated at fidelity `fast`
 * while it is dragged. */

/* In powers of two of what the run has, two at most. */
const POWERS = {step: 0.125},
  DOUBLINGS = {step: 1};
const ofMachine = (label, key) => ({
  label,
  path: `hardware.${key}`,
  had: run => run.machine[key],
  say: text.rate,
  ...POWERS,
});
const SLIDERS = [
  ofMachine('Network of a GPU', 'nic_Bps'),
  ofMachine('Links in a domain', 'scaleup_Bps'),
  ofMachine('Device memory, rate', 'hbm_Bps'),
  ofMachine('Link to the host', 'host_link_Bps'),
  {
    label: 'Global batch, sequences',
    path: 'training.global_batch_size',
    had: r => r.scenario.training.global_batch_size,
    say: String,
    ...DOUBLINGS,
  },
  {label: 'GPUs, in data parallelism', path: 'gpus', had: r => r.scenario.gpus, say: String, ...DOUBLINGS},
];

/* The scenario of a run with other values: [[path, value]]. */
function changedScenario(run, changes) {
  const scenario = JSON.parse(JSON.stringify(run.scenario));
  if (typeof scenario.hardware === 'string') scenario.hardware = {base: scenario.hardware};
  for (const key of ['dp', 'edp']) delete scenario.layout[key]; /* they follow the number of GPUs */
  for (const [path, value] of changes) {
    const keys = path.split('.'),
      last = keys.pop();
    keys.reduce((at, key) => at[key], scenario)[last] = value;
  }
  return scenario;
}
async function askFast(scenario) {
  const answer = await ask('POST', 'api/fast', JSON.stringify(scenario));
  if (answer.error) throw new Error(answer.error);
  return answer;
}
const neededB = result => Math.max(...result.memory.stages.map(s => s.device_B));

/* Does the last of what is asked for meanwhile, one at a time. */
function latest(work) {
  let next = null,
    busy = false;
  return async what => {
    next = {what};
    if (busy) return;
    busy = true;
    while (next) {
      const now = next.what;
      next = null;
      await work(now);
    }
    busy = false;
  };
}

function answerTable(before, now) {
  const row = (name, say, of) => [name, say(of(before)), say(of(now)), text.signed(of(now) / of(before) - 1)],
    memory = row('memory of the fullest stage', text.GiB, neededB);
  if (!now.feasible) memory[3] = 'does not fit';
  return table(
    ['', 'as it is', 'what if', 'change'],
    [
      row('step time', text.seconds, r => r.step_time_s),
      row('tokens/s/GPU', grouped, r => r.tokens_per_s_per_gpu),
      row('MFU', text.percent, r => r.mfu),
      memory,
    ],
    [0],
  );
}

/* How far the run can go that way, a step at a time for what is counted (a batch has to divide, groups have to fill
 * the GPUs); and whether that changes anything. */
async function reach(run, before, s, had, way) {
  let at = 0,
    moves = false;
  for (const next of s.step === 1 ? [way, 2 * way] : [2 * way]) {
    const value = had * 2 ** next,
      now =
        s.step !== 1 || Number.isInteger(value)
          ? await askFast(changedScenario(run, [[s.path, value]])).catch(() => null)
          : null;
    if (!now) break;
    at = next;
    moves ||= now.step_time_s !== before.step_time_s || neededB(now) !== neededB(before);
  }
  return {at, moves};
}

/* A slider that changes nothing is not shown. */
async function findMoving(run, before, each) {
  for (const s of SLIDERS) {
    const had = s.had(run);
    if (!known(had) || had <= 0) continue;
    const [down, up] = [await reach(run, before, s, had, -1), await reach(run, before, s, had, 1)];
    if (down.moves || up.moves) each({...s, min: down.at, max: up.at}, had);
  }
}

async function drawSliders(run) {
  if (!page.live || !run.scenario.hardware) return;
  const card = section(
      'sliders',
      'What if',
      'The same layout where one or several of these are different; only those stand here that change anything. ' +
        'Both sides are simulated at fidelity fast; the layout is not searched anew.',
    ),
    form = html('div', {class: 'live-form'}),
    said = html('div', {'aria-live': 'polite', id: 'sliders-answer'}),
    values = new Map();
  card.append(form, said);
  let before;
  const tell = latest(async () => {
    const changes = [...values];
    try {
      const scenario = changedScenario(run, changes),
        now = await askFast(scenario);
      said.replaceChildren(
        answerTable(before, now),
        caveatOf(now) || '',
        controls(
          button('Scenario', 'Download the scenario with these values', () => saveScenario(scenario)),
        ),
      );
    } catch (e) {
      said.replaceChildren(html('p', {class: 'note'}, e.message));
    }
  });
  try {
    before = await askFast(changedScenario(run, []));
  } catch (e) {
    card.remove();
    return;
  }
  await findMoving(run, before, (s, had) => {
    const shown = html('output', {}, s.say(had)),
      slider = html('input', {type: 'range', min: s.min, max: s.max, step: s.step, value: 0, 'aria-label': s.label});
    slider.addEventListener('input', () => {
      const at = Number(slider.value),
        value = had * 2 ** at;
      if (at === 0) values.delete(s.path);
      else values.set(s.path, value);
      shown.textContent = s.say(value);
      slider.setAttribute('aria-valuetext', s.say(value));
      tell();
    });
    form.append(html('label', {}, html('span', {}, `${s.label}: `, shown), slider));
  });
  if (!form.children.length) card.remove();
}
