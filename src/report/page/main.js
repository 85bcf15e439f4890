/* main.js - puts the page together. */

const page = JSON.parse(document.getElementById('data').textContent);
const state = {run: 0, stage: null};

function listSections() {
  for (const node of document.querySelectorAll('main > section'))
    document.getElementById('sections').append(html('a', {href: `#${node.id}`}, node.getAttribute('aria-label')));
  showFigures();
}

/* --- a plan: what to choose from, and all layouts, under the answer whichever run is shown ---------------------- */
const sameScenario = (a, b) =>
  ['model', 'hardware', 'gpus', 'layout', 'training', 'options'].every(
    k => JSON.stringify(a[k]) === JSON.stringify(b[k]),
  );
function showScenario(scenario) {
  const at = page.runs.findIndex(r => sameScenario(r.scenario, scenario));
  if (at < 0) return false;
  state.run = at;
  state.stage = null;
  drawRuns();
  drawRun();
  return true;
}
let planCards = null,
  cell = 0; /* of several plans the one that is looked at */
function drawPlan(plan) {
  if (!plan) return;
  const main = document.getElementById('main');
  if (planCards) return main.append(...planCards);
  const own = plan.cells ? plan.cells[cell] : plan,
    choices = section('choices', plan.cells ? 'What was asked, plan by plan' : 'What to choose from');
  if (plan.cells) choices.append(cellTable(plan, cell, lookAtCell));
  if (own.choices) choices.append(choiceCard(own, {show: showScenario}));
  planCards = [
    choices,
    own.best &&
      drawLayouts(main, own, {
        opens: true,
        look: showScenario,
        can: s => page.runs.some(r => sameScenario(r.scenario, s)),
      }),
  ].filter(Boolean);
}
function lookAtCell(i) {
  cell = i;
  planCards = null;
  const best = page.plan.cells[i].best;
  if (!best || !best.length || !showScenario(best[0].scenario)) drawRun();
}

function drawRun() {
  const run = page.runs[state.run];
  clearFigures();
  hideTip();
  drawSummary(run);
  drawPlan(page.plan);
  drawCompare(page.runs, state.run);
  drawDiff(page.diff);
  drawSliders(run);
  drawParts(run);
  drawWaterfall(run);
  drawTimeline(run);
  drawStreams(run, state);
  drawMemory(run, state);
  drawMap(run, state);
  drawTraffic(run);
  drawFabric(run);
  drawRoofline(run);
  drawStudies(page.studies);
  drawValidation(page.validation, run);
  drawSources(run);
  listSections();
}

function drawRuns() {
  /* which run the figures show */
  const place = document.getElementById('runs');
  place.replaceChildren();
  if (page.runs.length > 1)
    place.append(
      html(
        'select',
        {
          'aria-label': 'Run',
          onchange: e => {
            state.run = Number(e.target.value);
            state.stage = null;
            drawRun();
          },
        },
        page.runs.map((r, i) => html('option', {value: i, selected: i === state.run}, r.name)),
      ),
    );
}

/* --- colours: as the system has them, or light, or dark --------------------------------------------------------- */
function setTheme(theme) {
  if (theme === 'auto') document.documentElement.removeAttribute('data-theme');
  else document.documentElement.setAttribute('data-theme', theme);
  const node = document.getElementById('theme'),
    words = {auto: ['◐', 'as the system has them'], light: ['☀', 'light'], dark: ['☾', 'dark']}[theme];
  node.textContent = words[0];
  node.setAttribute('aria-label', `Colours: ${words[1]}`);
  node.title = `Colours: ${words[1]}`;
  node.dataset.theme = theme;
  redraw();
}
document
  .getElementById('theme')
  .addEventListener('click', () =>
    setTheme({auto: 'dark', dark: 'light', light: 'auto'}[document.getElementById('theme').dataset.theme || 'auto']),
  );
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);

/* Paper is white, whatever the screen is. */
let onScreen = 'auto';
addEventListener('beforeprint', () => {
  onScreen = document.getElementById('theme').dataset.theme || 'auto';
  setTheme('light');
});
addEventListener('afterprint', () => setTheme(onScreen));

/* --- the section in view is marked in the list ------------------------------------------------------------------ */
addEventListener(
  'scroll',
  () => {
    let current = null;
    for (const node of document.querySelectorAll('main > section'))
      if (node.getBoundingClientRect().top < 140) current = node.id;
    for (const link of document.querySelectorAll('.sections a'))
      link.toggleAttribute('aria-current', link.hash === `#${current}`);
  },
  {passive: true},
);

if (page.runs.length) {
  drawRuns();
  drawRun();
} else if (page.diff) {
  /* two profiles: nothing was predicted */
  drawDiff(page.diff);
  listSections();
}
/* Whoever drives the page waits for this mark: all of it stands, what the server is asked for too. */
(page.live ? startLive() : Promise.resolve()).finally(() => {
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
});
