/* live.js - with `moesim serve`: ask for a plan, watch it appear, look at layouts, compare them, take them away. */

const ask = async (method, path, body) => {
  const reply = await fetch(path, {
    method,
    headers: body === undefined ? {} : {'Content-Type': 'application/json'},
    body,
  });
  const content = await reply.text();
  if (reply.ok)
    return reply.headers.get('Content-Type').startsWith('application/json') ? JSON.parse(content) : content;
  let why = `${reply.status}`;
  try {
    why = JSON.parse(content).error;
  } catch (e) {
    /* not one of the server's own answers */
  }
  throw new Error(why);
};

/* What the server sends, until `take` says that it was the last. */
const eventsOf = (path, take) =>
  new Promise((done, failed) => {
    const source = new EventSource(path);
    const end = (how, what) => {
      source.close();
      how(what);
    };
    source.onmessage = e => {
      try {
        if (take(JSON.parse(e.data))) end(done);
      } catch (why) {
        end(failed, why);
      }
    };
    source.onerror = () => end(failed, new Error('the server does not answer any more'));
  });

/* Models and machines of the user's own files, which the server never sees but in a request: {name, like, content},
 * `like` a shipped one of the same kind. */
const own = {model: [], machine: []};

/* What the form says as a plan request, indented: the server builds it as the command line does. */
async function requestOf(form) {
  const mine = kind => own[kind].find(x => x.name === form[kind]),
    model = mine('model'),
    machine = mine('machine'),
    request = await ask(
      'POST',
      'api/request',
      JSON.stringify({
        model: model ? model.like : form.model,
        hardware: machine ? machine.like : form.machine,
        gpus: form.gpus,
        precision: form.precision,
        seq_lengths: form.sequence,
        global_batch_sizes: form.batch,
        ...Object.fromEntries(budget.map(b => [b.key, form[b.key]]).filter(([, value]) => value)),
      }),
    );
  if (model) request.model = model.content;
  if (machine) request.hardware = machine.content;
  return JSON.stringify(request, null, 2);
}

/* What a budget is said by: as on the command line, with units. */
const budget = [
  {key: 'tokens', label: 'Tokens to train on', like: '15T'},
  {key: 'critical_batch_tokens', label: 'Critical batch size, in tokens', like: '4Mi'},
  {key: 'deadline', label: 'Deadline', like: '30d'},
  {key: 'gpu_hour', label: 'Price of a GPU-hour', like: '2.50'},
  {key: 'max_watts', label: 'Power of all GPUs, at most', like: '1.2MW'},
  {key: 'max_memory', label: 'Memory of a GPU, at most', like: '70GB'},
  {key: 'lora', label: 'LoRA rank, if any', like: '16'},
];

/* Settings of the form in the address, so that it can be kept and sent. */
const remember = values =>
  history.replaceState(
    null,
    '',
    `#${new URLSearchParams(Object.entries(values).filter(([, value]) => value !== ''))}`,
  );
const remembered = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

function liveForm(choices, changed) {
  const start = {model: 'deepseek-v3', machine: 'gb200-nvl72', ...remembered()},
    pick = (list, name) => (list.some(x => x.name === name) ? name : list[0].name);
  const options = (list, value) => list.map(x => html('option', {value: x, selected: x === value}, x));
  /* A list that is searched by typing any part of a name; entering it empties it, so that all names are offered. */
  const searched = (id, names, value) => {
    const list = html('datalist', {id: `${id}-names`}, options(names)),
      node = html('input', {id, list: list.id, value, autocomplete: 'off', spellcheck: 'false', required: true});
    node.addEventListener('focus', () => {
      node.placeholder = node.value;
      node.value = '';
    });
    node.addEventListener('blur', () => {
      node.value ||= node.placeholder;
    });
    node.addEventListener('input', () => {
      if ([...list.options].some(o => o.value === node.value)) node.dispatchEvent(new Event('change'));
    });
    return {node, list};
  };
  const models = searched(
      'live-model',
      choices.models.map(m => m.name),
      pick(choices.models, start.model),
    ),
    machines = searched(
      'live-machine',
      choices.machines.map(m => m.name),
      pick(choices.machines, start.machine),
    ),
    [model, machine] = [models.node, machines.node];
  /* Sizes are texts, for lists and units: the server reads them as the command line does. */
  const precision = html('select', {id: 'live-precision'}),
    size = (id, value, title) => html('input', {id, type: 'text', value, title, required: true, autocomplete: 'off'});
  const gpus = size('live-gpus', start.gpus || '256', 'one, several as 8,16,64, or doubling from 256..2048'),
    sequence = size('live-sequence', start.sequence || '4096', 'tokens: 4096 or 8k; several as 4k,8k'),
    batch = size('live-batch', start.batch || '2048', 'one, or several as 1024,2048'),
    spent = budget.map(b =>
      html('input', {
        id: `live-${b.key}`,
        type: 'text',
        placeholder: b.like,
        value: start[b.key] || '',
        autocomplete: 'off',
      }),
    );
  const offer = () => {
    const mine = own.machine.find(m => m.name === machine.value),
      found = choices.machines.find(m => m.name === (mine ? mine.like : machine.value)),
      list = found ? found.precisions : ['bf16'], /* the server says what is wrong with the name */
      had = precision.value || start.precision;
    precision.replaceChildren(...options(list, list.includes(had) ? had : 'bf16'));
  };
  const values = () => ({
    model: model.value,
    machine: machine.value,
    precision: precision.value,
    gpus: gpus.value.trim(),
    sequence: sequence.value.trim(),
    batch: batch.value.trim(),
    ...Object.fromEntries(budget.map((b, i) => [b.key, spent[i].value.trim()])),
  });
  const tell = () => {
    remember(values());
    changed(values());
  };
  const field = (label, node) => {
    node.addEventListener('change', () => {
      if (node === machine) offer();
      tell();
    });
    return html('label', {}, label, node);
  };
  offer();
  /* A file of the user's becomes one more choice, and is chosen. */
  const add = (kind, item) => {
    const {node, list} = kind === 'model' ? models : machines;
    if (!own[kind].some(x => x.name === item.name)) list.append(html('option', {value: item.name}, item.name));
    own[kind] = [...own[kind].filter(x => x.name !== item.name), item];
    node.value = item.name;
    if (kind === 'machine') offer();
    tell();
  };
  return {
    values,
    add,
    node: html(
      'div',
      {class: 'live-form'},
      models.list,
      machines.list,
      field('Model', model),
      field('Machine', machine),
      field('GPUs', gpus),
      field('Precision', precision),
      field('Sequence length', sequence),
      field('Global batch, sequences', batch),
      ...budget.map((b, i) => field(b.label, spent[i])),
    ),
  };
}

/* What a file is, by the keys that only its kind has: model, machine, request or scenario; null: none of these. */
function kindOf(json, choices) {
  const is = list => list.some(x => x.name === json.base);
  if (json.model !== undefined && json.hardware !== undefined) {
    const open = part => Object.values(json[part] || {}).some(v => v === 'auto' || Array.isArray(v));
    return json.plan || !json.layout || ['layout', 'training'].some(open) ? 'request' : 'scenario';
  }
  if (json.hidden_size !== undefined || json.num_layers !== undefined || is(choices.models)) return 'model';
  return json.hbm_B !== undefined || json.gpus_per_node !== undefined || is(choices.machines) ? 'machine' : null;
}

/* Shipped models and machines that stand for one of the user's while the request is built. */
function standIn(kind, json, choices) {
  const list = kind === 'model' ? choices.models : choices.machines,
    usual = kind === 'machine' ? 'h100-sxm' : json.num_experts > 0 ? 'mixtral-8x7b' : 'llama3-8b',
    has = name => list.some(x => x.name === name);
  return has(json.base) ? json.base : has(usual) ? usual : list[0].name;
}

/* --- the ranking ------------------------------------------------------------------------------------------------ */
const layoutText = s =>
  `tp ${s.layout.tp} · cp ${s.layout.cp} · pp ${s.layout.pp} × ${s.layout.vpp} · ep ${s.layout.ep} · etp ` +
  `${s.layout.etp} · micro-batch ${s.training.micro_batch_size}`;
function recomputeText(s) {
  const r = s.options && s.options.recompute;
  return !r ? '' : r.granularity === 'selective' ? r.modules.join(', ') : r.granularity;
}

function ranking(best, chosen, act) {
  /* `act` only when the plan is whole: {look, launch, page, chosen} */
  const head = [act ? 'compare' : '#', 'layout', 'recompute', 'step time', 'tokens/s/GPU', 'MFU', 'memory', 'take'];
  return table(
    head,
    best.map((b, i) => [
      html(
        'td',
        {},
        act
          ? html('input', {
              type: 'checkbox',
              'aria-label': `Compare layout ${i + 1}`,
              checked: chosen.has(i),
              onchange: e => {
                e.target.checked ? chosen.add(i) : chosen.delete(i);
                act.chosen();
              },
            })
          : `${i + 1}`,
      ),
      layoutText(b.scenario),
      recomputeText(b.scenario),
      text.seconds(b.step_time_s),
      Math.round(b.tokens_per_s_per_gpu).toLocaleString('en-US'),
      text.percent(b.mfu),
      text.GiB(Math.max(...b.memory.stages.map(m => m.device_B))),
      html(
        'td',
        {},
        act
          ? html(
              'span',
              {class: 'seg'},
              button('show', `Show layout ${i + 1}`, () => act.look([i])),
              button('scenario', `Download the scenario of layout ${i + 1}`, () => saveScenario(b.scenario)),
              button('page', `Download the page of layout ${i + 1}`, () => act.page(i)),
              button('launch', `launch layout ${i + 1}`, () => act.launch(i)),
            )
          : '',
      ),
    ]),
    [1, 2],
  );
}

/* Days, money and energy of the whole training, where a plan has been told its tokens: [heading, text of a choice]. */
const BUDGET_COLUMNS = [
  ['days', t => digits(t.days) + (known(t.deadline_days) ? ` of ${digits(t.deadline_days)}` : '')],
  ['price', t => (known(t.price) ? grouped(t.price) : '–')],
  ['MWh', t => digits(t.energy_MWh)],
  ['tCO2e', t => digits(t.co2_t)],
];

/* Nothing fits: what would, the nearest change first, and behind it what refused the layouts. */
function wouldFit(plan, act) {
  const ways = plan.would_fit ? plan.would_fit.ways : [],
    tried = plan.would_fit ? plan.would_fit.gpus_tried || [] : [],
    refused = plan.refused || [];
  return html(
    'div',
    {id: 'live-would-fit'},
    html('p', {}, `No layout fits.${ways.length ? ' These would, and a plan of them finds faster ones:' : ''}`),
    ways.length
      ? table(
          ['would fit', 'layout', 'step time', 'memory', 'open'],
          ways.map(w => [
            `${w.kind === 'options' ? 'with ' : ''}${w.change}`,
            layoutText(w.scenario),
            text.seconds(w.step_time_s),
            text.GiB(w.device_B),
            html('td', {}, button('show', `Show what fits: ${w.change}`, () => act.show(w.scenario))),
          ]),
          [0, 1],
        )
      : '',
    tried.length
      ? html('p', {class: 'note'}, `${tried.join(', ')} GPUs ${ways.length ? 'are too few' : 'do not help'}.`)
      : '',
    refused.length
      ? folded('what refused the layouts', () =>
          table(
            ['refused by', 'layouts', 'nearest'],
            refused.slice(0, 6).map(r => [r.rule, grouped(r.count), r.example || '']),
            [2],
          ),
        )
      : '',
  );
}

/* Several plans at once: the best of each, and which one is looked at. `pick(i)`: null while they are searched. */
function cellTable(sweep, picked, pick) {
  const cells = sweep.cells,
    many = key => new Set(cells.map(c => c[key])).size > 1,
    sizes = [
      ['sequence', 'seq_length'],
      ['batch', 'global_batch_size'],
    ].filter(([, key]) => many(key)),
    best = c => (c.best ? c.best[0] : known(c.step_time_s) ? c : null),
    looked = i =>
      fill(
        button(i === picked ? 'below' : 'look at', `Look at plan ${i + 1}`, () => pick(i)),
        {'aria-pressed': String(i === picked)},
        [],
      );
  return html(
    'div',
    {id: 'cells'},
    (sweep.advice || []).length
      ? adviceList(sweep.advice.map(s => sentence(s)))
      : '',
    table(
      [
        ...['model', 'machine', 'GPUs'],
        ...sizes.map(([head]) => head),
        ...['step time', 'tokens/s/GPU', 'MFU', 'best layout', 'open'],
      ],
      cells.map((c, i) => {
        const b = best(c);
        return [
          c.model,
          c.hardware,
          grouped(c.gpus),
          ...sizes.map(([, key]) => grouped(c[key])),
          ...(b
            ? [text.seconds(b.step_time_s), grouped(b.tokens_per_s_per_gpu), text.percent(b.mfu)]
            : ['–', '–', '–']),
          b && b.scenario ? layoutText(b.scenario) : c.why || (pick ? 'nothing fits' : ''),
          html('td', {}, pick && !c.why ? looked(i) : ''),
        ];
      }),
      [0, 1, 6 + sizes.length],
    ),
  );
}

/* What to do, and the few layouts to choose from. */
const KIND_TITLES = {memory: 'memory to spare', simplest: 'simplest to run'};
function choiceCard(plan, act) {
  const list = plan.choices.list,
    spent = list.some(c => c.training) ? BUDGET_COLUMNS : [];
  return html(
    'div',
    {id: 'live-choices'},
    adviceList(plan.choices.advice.map(s => sentence(s, plan.named && plan.named.scenario.name))),
    caveatOf(plan.best[0]),
    table(
      [
        ...['#', 'choice', 'layout', 'recompute', 'step time', 'tokens/s/GPU', 'MFU', 'memory', 'than 1'],
        ...spent.map(([head]) => head),
        'open',
      ],
      list.map((c, i) => [
        `${i + 1}`,
        c.kinds.map(k => KIND_TITLES[k] || k).join(', '),
        layoutText(c.scenario),
        recomputeText(c.scenario),
        text.seconds(c.step_time_s),
        Math.round(c.tokens_per_s_per_gpu).toLocaleString('en-US'),
        text.percent(c.mfu),
        text.GiB(c.device_B),
        i ? `${c.tied ? '= ' : ''}${text.signed(c.slower)}` : '',
        ...spent.map(([, say]) => (c.training ? say(c.training) : '')),
        html('td', {}, button('show', `Show choice ${i + 1}`, () => act.show(c.scenario))),
      ]),
      [1, 2, 3],
    ),
  );
}

async function startLive() {
  const place = document.getElementById('live'),
    card = html('section', {class: 'card', id: 'plan', 'aria-label': 'Plan'}),
    note = html('p', {class: 'note', role: 'status'});
  place.append(card);
  let choices;
  try {
    choices = await ask('GET', 'api/choices');
  } catch (e) {
    card.append(html('p', {class: 'warn', role: 'alert'}, `The server does not answer: ${e.message}`));
    return;
  }
  const editor = html('textarea', {
    id: 'live-request',
    rows: 14,
    spellcheck: 'false',
    'aria-label': 'Plan request',
    class: 'mono',
    style: 'width:100%',
  });
  let asked = Promise.resolve();
  const write = values => {
    asked = asked
      .then(() => requestOf(values))
      .then(text => {
        editor.value = text;
        note.textContent = '';
      })
      .catch(e => {
        editor.value = '';
        note.textContent = e.message;
      });
  };
  const form = liveForm(choices, write);
  write(form.values());
  const file = html('input', {type: 'file', id: 'live-file', accept: '.json,application/json'});
  file.addEventListener('change', async () => {
    const chosen = file.files[0];
    if (!chosen) return;
    let json = null;
    try {
      json = JSON.parse(await chosen.text());
    } catch (e) {
      /* said below */
    }
    file.value = '';
    const kind = json && typeof json === 'object' ? kindOf(json, choices) : null,
      name = chosen.name.replace(/\.json$/, '');
    if (!kind) note.textContent = `${chosen.name} is no model, machine, request or scenario of moesim.`;
    else if (kind === 'scenario') await beside(json);
    else if (kind === 'request') {
      editor.value = JSON.stringify(json, null, 2);
      note.textContent = `The request is that of ${chosen.name}.`;
    } else form.add(kind, {name: `${name} (file)`, like: standIn(kind, json, choices), content: {name, ...json}});
  });
  const bar = html('i', {}),
    progress = html(
      'div',
      {
        class: 'progress',
        hidden: true,
        role: 'progressbar',
        'aria-label': 'Search',
        'aria-valuemin': 0,
        'aria-valuemax': 100,
      },
      bar,
    ),
    list = html('div', {}),
    flags = html('div', {}),
    map = html('div', {});
  const search = html('button', {type: 'button', class: 'button strong', id: 'live-search'}, 'Search layouts'),
    stop = html('button', {type: 'button', class: 'button', hidden: true}, 'Stop');
  const compare = html(
    'button',
    {type: 'button', class: 'button', hidden: true, id: 'live-compare'},
    'Compare the ticked layouts',
  );
  const around = html(
    'button',
    {type: 'button', class: 'button', hidden: true, id: 'live-around'},
    'Find faster layouts for my run',
  );
  card.append(
    html('h1', {class: 'title'}, 'Plan a training run'),
    html(
      'p',
      {class: 'note'},
      'Which layout trains this model fastest on these GPUs, and fits? The search runs on this machine; a search ' +
      'may take ' +
        `${choices.time_s} s.`,
    ),
    form.node,
    html('label', {class: 'note'}, 'A model, machine, request or scenario of your own: ', file),
    html('details', {style: 'margin-top:10px'}, html('summary', {}, 'The request, key by key'), editor),
    controls(search, stop, compare, around),
    progress,
    note,
    list,
    flags,
  );
  place.append(map);

  let looks = 0; /* what was asked for last is shown, whichever answer comes last */
  const look = async scenarios => {
    const asked = ++looks;
    let runs;
    note.textContent = 'Simulating …';
    try {
      runs = await Promise.all(scenarios.map(s => ask('POST', 'api/run', JSON.stringify(s))));
    } catch (e) {
      if (asked === looks) note.textContent = e.message;
      return false;
    }
    if (asked !== looks) return false;
    page.runs = runs;
    note.textContent = scenarios.length > 1 ? 'Side by side below.' : 'Shown below.';
    state.run = 0;
    state.stage = null;
    drawRuns();
    drawRun();
    document.getElementById(scenarios.length > 1 ? 'compare' : 'summary').scrollIntoView();
    return true;
  };
  /* A scenario of the user's own, with the winner of the search on its right and on the map. */
  let found = null,
    mine = null;
  const beside = async json => {
    mine = json;
    around.hidden = false;
    const winner = found && found.best.length ? [found.best[0].scenario] : [];
    if (!(await look([json, ...winner])) || !winner.length) return;
    const own = page.runs[0];
    found.named = {
      scenario: own.scenario,
      step_time_s: own.result.step_time_s,
      device_B: Math.max(...own.result.memory.stages.map(s => s.device_B)),
    };
    map.replaceChildren();
    drawLayouts(map, found, {look: scenario => look([scenario]), can: () => true});
  };
  const keepPage = async scenario => {
    try {
      save(`${scenario.name}.html`, await ask('POST', 'api/page', JSON.stringify(scenario)));
    } catch (e) {
      note.textContent = e.message;
    }
  };
  let launcher = null; /* chosen last; until then the form of the scenario's framework */
  const launch = async (scenario, as = launcher) => {
    launcher = as;
    const forms = html('div', {}),
      choose = form =>
        forms.replaceChildren(
          controls(
            choice(
              'Launched by',
              choices.launch_forms.map(name => [name, name]),
              form,
              name => launch(scenario, name),
            ),
          ),
        );
    flags.replaceChildren(html('h3', {}, `What launches ${layoutText(scenario)}`), forms);
    choose(as || choices.launch_forms[0]);
    const title = flags.firstChild,
      current = () => flags.firstChild === title; /* no other was asked for meanwhile */
    try {
      const {form, suffix, text} = await ask('POST', as ? `api/launch/${as}` : 'api/launch', JSON.stringify(scenario));
      if (!current()) return;
      if (!as) choose(form);
      flags.append(
        html('pre', {class: 'flags', tabindex: 0}, text),
        controls(
          button('Download', 'Download what starts it', () =>
            save(`${scenario.name}.${form.replace(':', '-')}.${suffix}`, text),
          ),
        ),
      );
    } catch (e) {
      if (current()) flags.append(html('p', {class: 'warn', role: 'alert'}, e.message));
    }
  };

  /* Of several plans the table stays, and one of them is shown below it. */
  const showCells = (sweep, whole, picked) => {
    const place = html('div', {});
    if (whole) {
      const cell = sweep.cells[picked];
      if (cell && cell.best) show(cell, true);
      else {
        list.replaceChildren();
        map.replaceChildren();
        compare.hidden = true;
      }
      place.append(...list.childNodes);
    }
    list.replaceChildren(cellTable(sweep, picked, whole ? i => showCells(sweep, true, i) : null), place);
  };
  const firstFound = sweep => Math.max(sweep.cells.findIndex(c => c.best && c.best.length), 0);
  const show = (plan, whole) => {
    if (plan.cells) return showCells(plan, whole, whole ? firstFound(plan) : -1);
    const chosen = new Set(plan.best.length > 1 ? [0, 1] : []),
      best = plan.best;
    const act = whole
      ? {
          look: picked => look(picked.map(i => best[i].scenario)),
          show: scenario => look([scenario]),
          launch: i => launch(best[i].scenario),
          page: i => keepPage(best[i].scenario),
          chosen: () => {
            compare.disabled = chosen.size < 2;
          },
        }
      : null;
    list.replaceChildren(
      act && plan.choices ? choiceCard(plan, act) : '',
      best.length ? ranking(best, chosen, act) : whole ? wouldFit(plan, act) : '',
    );
    compare.hidden = !whole || best.length < 2;
    compare.onclick = () => act.look([...chosen].sort((a, b) => a - b).slice(0, 4));
    map.replaceChildren();
    found = whole ? plan : null;
    if (whole) drawLayouts(map, plan, {look: act.show, can: () => true});
  };
  /* Of several plans the sum. */
  const counted = (plan, key) => plan[key] ?? sum(plan.cells.map(c => c[key] || 0));
  const find = async () => {
    let id = null;
    search.disabled = true;
    stop.hidden = false;
    progress.hidden = false;
    compare.hidden = true;
    flags.replaceChildren();
    list.replaceChildren();
    map.replaceChildren();
    bar.style.width = '0';
    note.textContent = 'Searching …';
    stop.onclick = () => {
      if (id) ask('DELETE', `api/plan/${id}`).catch(() => {});
    };
    await asked;
    const leave = () => id && fetch(`api/plan/${id}`, {method: 'DELETE', keepalive: true});
    addEventListener('pagehide', leave);
    try {
      ({id} = await ask('POST', 'api/plan', editor.value));
      await eventsOf(`api/plan/${id}/events`, now => {
        const p = now.plan,
          over = !['waiting', 'running'].includes(now.state);
        const share = over ? 1 : p ? p.done || 0 : 0;
        bar.style.width = `${100 * share}%`;
        progress.setAttribute('aria-valuenow', Math.round(100 * share));
        if (p) show(p, over && (p.valid ?? p.front) !== undefined);
        if (now.state === 'failed') throw new Error(now.message.replace(/^moesim: /, '').trim());
        note.textContent =
          now.state === 'waiting'
            ? 'Waiting for another search …'
            : !p
              ? 'Searching …'
              : (over ? `${grouped(counted(p, 'searched'))} layouts looked at, ` : '') +
                `${grouped(counted(p, 'simulated'))} simulated${
                  now.state === 'stopped'
                    ? '; stopped, better ones may be missing'
                    : over
                      ? ` in ${text.seconds(p.elapsed_s)}`
                      : ''
                }`;
        return over;
      });
    } catch (e) {
      note.textContent = '';
      list.replaceChildren(html('p', {class: 'warn', role: 'alert'}, e.message));
    }
    removeEventListener('pagehide', leave);
    search.disabled = false;
    stop.hidden = true;
  };
  search.addEventListener('click', () => {
    mine = null;
    find();
  });
  /* What is faster than a run of one's own: its layout and recomputation are left open. */
  around.addEventListener('click', async () => {
    const run = mine;
    around.disabled = true;
    try {
      editor.value = JSON.stringify(await ask('POST', 'api/around', JSON.stringify(run)), null, 2);
      asked = Promise.resolve();
      await find();
      if (found) await beside(run);
    } catch (e) {
      note.textContent = e.message;
    }
    around.disabled = false;
    around.hidden = false;
  });
  await asked;
}
