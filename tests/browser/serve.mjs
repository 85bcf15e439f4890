// `moesim serve`: what it answers, what it refuses, and that nothing brings it down; then its page in a browser.
import {readFileSync, readdirSync, rmSync, writeFileSync} from 'node:fs';
import {spawn} from 'node:child_process';
import http from 'node:http';
import net from 'node:net';
import {tmpdir} from 'node:os';
import {join} from 'node:path';
import {check, equal, finish, folder, moesim, ok, open} from './harness.mjs';

process.env.TMPDIR = folder; /* what servers leave is looked for here, where no other test's is */

/* --- a server of our own ---------------------------------------------------------------------------------------- */
async function serve(...args) {
  const env = {
    ...process.env,
    ASAN_OPTIONS: `${process.env.ASAN_OPTIONS || ''}:quarantine_size_mb=8`,
  }; /* freed memory that a sanitizer holds back is not the server's */
  const child = spawn('moesim', ['serve', '--port', '0', ...args], {env, stdio: ['ignore', 'pipe', 'pipe']});
  const server = {
    child,
    err: '',
    ended: new Promise(done => child.on('exit', (code, signal) => done(code ?? signal))),
  };
  child.stderr.on('data', d => {
    server.err += d;
  });
  server.port = await new Promise((done, fail) => {
    child.stdout.on('data', d => {
      const m = /http:\/\/127\.0\.0\.1:(\d+)\//.exec(d);
      if (m) done(Number(m[1]));
    });
    server.ended.then(code => fail(new Error(`serve ended with ${code}: ${server.err}`)));
  });
  return server;
}
function ask(server, method, path, body, headers = {}) {
  return new Promise((done, fail) => {
    const request = http.request(
      {
        host: '127.0.0.1',
        port: server.port,
        method,
        path,
        agent: false,
        headers: {...(body === undefined ? {} : {'Content-Type': 'application/json'}), ...headers},
      },
      reply => {
        let text = '';
        reply
          .setEncoding('utf8')
          .on('data', d => {
            text += d;
          })
          .on('end', () => done({status: reply.statusCode, text, headers: reply.headers}));
      },
    );
    request.on('error', fail);
    request.end(body);
  });
}
/* Raw bytes in, everything that comes back until it closes. */
const raw = (server, bytes) =>
  new Promise(done => {
    let text = '';
    const socket = net.connect(server.port, '127.0.0.1', () => socket.end(bytes));
    socket
      .on('data', d => {
        text += d;
      })
      .on('error', () => done(text))
      .on('close', () => done(text));
  });
const alive = async server => equal((await ask(server, 'GET', '/')).status, 200, 'GET / afterwards');
const rss = server =>
  Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))[1]) / 1024;
const children = server =>
  readFileSync(`/proc/${server.child.pid}/task/${server.child.pid}/children`, 'utf8')
    .trim()
    .split(/\s+/)
    .filter(Boolean);
const left = () => readdirSync(tmpdir()).filter(n => n.startsWith('moesim-serve-')).length;
async function over(server, id) {
  for (;;) {
    const now = JSON.parse((await ask(server, 'GET', `/api/plan/${id}`)).text);
    if (!['waiting', 'running'].includes(now.state)) return now;
    await new Promise(done => setTimeout(done, 40));
  }
}

const request = JSON.parse(readFileSync('scenarios/plan-llama3-70b-h100-64.json', 'utf8'));
request.training.micro_batch_size = 1;
request.options.recompute = {granularity: 'none'};
request.layout = {...request.layout, tp: [2, 4, 8], cp: 1, pp: [2, 4], vpp: 1};
request.plan.top = 2;
const small = JSON.stringify(request),
  scenario = readFileSync('scenarios/run-llama3-70b-h100-64.json', 'utf8');
/* Long, but with a first layout soon. */
const large = JSON.stringify({
  ...request,
  gpus: 128,
  layout: {},
  options: {},
  training: {...request.training, micro_batch_size: 'auto'},
  plan: {top: 500},
});

writeFileSync(join(folder, 'request.json'), small);
const folders = left(),
  server = await serve('--idle', '2'),
  at = `http://127.0.0.1:${server.port}/`,
  atRest = rss(server);

/* --- what it answers -------------------------------------------------------------------------------------------- */
await check('a hundred plans at once, all the same answer, memory bounded', async () => {
  const started = await Promise.all([...Array(100)].map(() => ask(server, 'POST', '/api/plan', small)));
  equal(started.filter(r => r.status === 202).length, 100, 'accepted');
  const all = await Promise.all(started.map(r => over(server, JSON.parse(r.text).id)));
  equal(all.filter(p => p.state === 'done').length, 100, 'done');
  equal(
    new Set(all.map(p => JSON.stringify(p.plan.best.map(b => [b.step_time_s, b.scenario.layout])))).size,
    1,
    'different answers',
  );
  const want = JSON.parse((await moesim('plan', '--json', join(folder, 'request.json'))).stdout || '{"best":[]}');
  equal(all[0].plan.best[0].step_time_s, want.best[0].step_time_s, 'step time of moesim plan');
  ok(rss(server) < atRest + 200, `${rss(server)} MiB, ${atRest} at rest`);
  equal(children(server).length, 0, 'processes left');
});

await check('more than may wait are refused, the others answered', async () => {
  const started = await Promise.all([...Array(240)].map(() => ask(server, 'POST', '/api/plan', small))),
    taken = started.filter(r => r.status === 202),
    refused = started.filter(r => r.status === 503);
  equal(taken.length + refused.length, 240, 'other answers');
  ok(refused.length > 0 && refused[0].headers['retry-after'], 'none refused');
  for (const r of taken) await ask(server, 'DELETE', `/api/plan/${JSON.parse(r.text).id}`);
  const states = new Set((await Promise.all(taken.map(r => over(server, JSON.parse(r.text).id)))).map(p => p.state));
  ok(
    [...states].every(s => s === 'stopped' || s === 'done'),
    [...states].join(' '),
  );
  await alive(server);
});

await check('a run is the data of the page', async () => {
  const r = await ask(server, 'POST', '/api/run', scenario),
    run = JSON.parse(r.text),
    want = JSON.parse((await moesim('run', '--json', 'scenarios/run-llama3-70b-h100-64.json')).stdout);
  equal(r.status, 200, 'status');
  equal(run.result.step_time_s, want.step_time_s, 'step time');
  ok(run.passes.length > 0 && run.operators.length > 0, 'figures');
});

await check('launch arguments of what was planned', async () => {
  const best = (await over(server, JSON.parse((await ask(server, 'POST', '/api/plan', small)).text).id)).plan.best[0]
      .scenario,
    r = await ask(server, 'POST', '/api/launch/megatron', JSON.stringify(best));
  equal(r.status, 200, r.text.slice(0, 200));
  ok(JSON.parse(r.text).text.includes(`--tensor-model-parallel-size ${best.layout.tp}`), r.text.slice(0, 400));
  const own = JSON.parse((await ask(server, 'POST', '/api/launch', JSON.stringify(best))).text);
  equal(own.form, 'megatron', 'form of its framework');
  equal(own.suffix, 'sh', 'end of the name');
  const titan = readFileSync('scenarios/published/torchtitan/TT-8b-h100-8-compile-fp8.json', 'utf8'),
    toml = JSON.parse((await ask(server, 'POST', '/api/launch', titan)).text);
  equal(toml.form, 'torchtitan', 'form of TorchTitan');
  equal(toml.suffix, 'toml', 'end of its name');
  equal((await ask(server, 'POST', '/api/launch/nothing', JSON.stringify(best))).status, 404, 'an unknown form');
  equal((await ask(server, 'GET', '/api/launch/megatron')).status, 405, 'GET');
});

await check('a few words are the request of the command line, and its plan', async () => {
  const words = {
    model: 'llama3-8b',
    hardware: 'h100-sxm',
    gpus: 8,
    precision: 'bf16',
    seq_length: 4096,
    global_batch_size: 16,
  };
  const options = [
    '--model',
    words.model,
    '--hardware',
    words.hardware,
    '--gpus',
    '8',
    '--precision',
    'bf16',
    '-s',
    '4096',
    '-b',
    '16',
  ];
  const r = await ask(server, 'POST', '/api/request', JSON.stringify(words)),
    written = (await moesim('plan', ...options, '--write-request', '-')).stdout;
  equal(r.text, written.trim(), 'request');
  const best = (await over(server, JSON.parse((await ask(server, 'POST', '/api/plan', r.text)).text).id)).plan.best,
    want = JSON.parse((await moesim('plan', ...options, '--json')).stdout).best;
  equal(
    JSON.stringify(best.map(b => [b.step_time_s, b.scenario])),
    JSON.stringify(want.map(b => [b.step_time_s, b.scenario])),
    'plan',
  );
  for (const [bad, why] of [
    [{model: 'llama3-8b'}, 'give model, hardware and gpus'],
    [{...words, gpus: 0}, 'gpus 0: give numbers'],
    [{...words, model: '/etc/passwd'}, 'a server reads no files'],
    [{...words, precision: 'fp8'}, 'precision fp8'],
    [{...words, gpus: 16.9}, 'gpus 16.9: give numbers'],
    [{...words, seq_length: true}, 'seq_length: must be a text, a number, or a list'],
    [{...words, deadlin: '3d'}, 'did you mean "deadline"?'],
    [{...words, tokens: '1e308'}, 'plan.training_tokens'],
  ]) {
    const refused = await ask(server, 'POST', '/api/request', JSON.stringify(bad));
    equal(refused.status, 400, JSON.stringify(bad));
    ok(JSON.parse(refused.text).error.includes(why), refused.text);
  }
});

/* --- what it refuses -------------------------------------------------------------------------------------------- */
await check('malformed bodies are told what is wrong', async () => {
  const bad = [
    '',
    '{',
    '[]',
    '{}',
    'null',
    '{"schema":1}',
    small.slice(0, -30),
    `{"a":${'['.repeat(5000)}`,
    '{"gpus":1e999}',
    '{"a":1,"a":2}',
    '\u0000',
    '{"schema":1,"gpus":99999999999999999999}',
    small.replace('"gpus":64', '"gpus":-1'),
    small.replace('"gpus":64', '"gpu":64'),
    small.replace('"gpus":64', '"gpus":1000000'),
    small.replace('65536', '1e300'),
  ];
  for (const path of ['/api/plan', '/api/run'])
    for (const body of bad) {
      const r = await ask(server, 'POST', path, body);
      if (path === '/api/plan' && r.status === 202) {
        /* what only the planner finds wrong */
        const p = await over(server, JSON.parse(r.text).id);
        if (body !== bad[bad.length - 1])
          ok(p.state === 'failed' && p.message.length > 10, `${body.slice(0, 60)}: ${p.state}`);
      } else if (!(path === '/api/run' && body === bad[bad.length - 1])) {
        equal(r.status, 400, body.slice(0, 60));
        ok(JSON.parse(r.text).error.length > 5, r.text);
      }
    }
  const invalid = Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d]);
  equal((await ask(server, 'POST', '/api/plan', invalid)).status, 400, 'not UTF-8');
  await alive(server);
});

await check('paths name nothing', async () => {
  for (const name of [
    '/etc/passwd',
    '../../../etc/passwd',
    'models/deepseek-v3.json',
    '..',
    '-',
    'C:\\x',
    './h100-sxm',
    'file:///etc/passwd',
  ])
    for (const make of [
      n => ({model: n}),
      n => ({hardware: n}),
      n => ({model: {base: n}}),
      n => ({hardware: {base: n, nic_Bps: 1e9}}),
    ]) {
      const r = await ask(server, 'POST', '/api/run', JSON.stringify({...JSON.parse(scenario), ...make(name)}));
      equal(r.status, 400, `${name} ${r.text.slice(0, 80)}`);
      ok(!r.text.includes('root:x:'), r.text);
    }
  for (const path of [
    '/etc/passwd',
    '/../../../../etc/passwd',
    '/..%2f..%2fetc/passwd',
    '/%2e%2e/%2e%2e/etc/passwd',
    '//etc/passwd',
    '/api/../../etc/passwd',
    '/api/plan/../../../etc/passwd',
    '/api/plan/%00',
    '/src/cli/main.c',
    '/./',
  ]) {
    const reply = await raw(
      server,
      `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nConnection: close\r\n\r\n`,
    );
    ok(
      /^HTTP\/1\.1 (404|400|301|200)/.test(reply) && !reply.includes('root:x:') && !reply.includes('#include'),
      `${path}: ${reply.slice(0, 60)}`,
    );
    if (reply.startsWith('HTTP/1.1 200')) ok(reply.includes('<title>moesim'), `${path} served something else`);
  }
});

await check('strangers are refused', async () => {
  equal((await ask(server, 'GET', '/', undefined, {Host: 'evil.example:80'})).status, 421, 'another host');
  equal((await ask(server, 'GET', '/', undefined, {Host: `localhost:${server.port}`})).status, 200, 'localhost');
  equal(
    (await ask(server, 'POST', '/api/plan', small, {Origin: 'http://evil.example'})).status,
    403,
    'another origin',
  );
  equal(
    (
      await ask(server, 'POST', '/api/plan', small, {
        Origin: `http://127.0.0.1:${server.port}`,
        'Content-Type': 'text/plain',
      })
    ).status,
    415,
    'a simple request',
  );
  equal((await ask(server, 'PUT', '/api/plan', small)).status, 400, 'PUT');
  const wrong = await ask(server, 'GET', '/api/run');
  equal(wrong.status, 405, 'GET of a run');
  equal(wrong.headers.allow, 'POST', 'what it takes');
  equal(wrong.headers.connection, 'close', 'one answer a connection');
  equal((await ask(server, 'DELETE', '/api/plan/x')).status, 404, 'an unknown plan');
  const page = await ask(server, 'GET', '/');
  ok(
    page.headers['content-security-policy'].includes("default-src 'none'") &&
      !page.headers['content-security-policy'].includes('unsafe-inline') &&
      page.headers['x-content-type-options'] === 'nosniff',
    'headers',
  );
});

await check('lengths that are none are refused, without a word of the libraries', async () => {
  for (const length of ['-5', '99999999999999999999', '2\r\nContent-Length: 3']) {
    const reply = await raw(
      server,
      `POST /api/run HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: application/json\r\n` +
        `Content-Length: ${length}\r\n\r\n{}`,
    );
    ok(reply.startsWith('HTTP/1.1 400') && reply.includes('"error"'), `${length}: ${reply.slice(0, 60)}`);
  }
  await alive(server);
  ok(!server.err.includes('WARNING'), server.err);
});

await check('a name that is allowed is let in, and no other', async () => {
  const named = await serve('--allow-host', 'sim.example');
  equal((await ask(named, 'GET', '/', undefined, {Host: `sim.example:${named.port}`})).status, 200, 'the name');
  equal((await ask(named, 'GET', '/', undefined, {Host: `sim.example.evil:${named.port}`})).status, 421, 'another');
  const origin = {Host: `sim.example:${named.port}`, Origin: `http://sim.example:${named.port}`};
  equal((await ask(named, 'POST', '/api/plan', small, origin)).status, 202, 'a plan of its page');
  named.child.kill('SIGTERM');
  equal(await named.ended, 0, 'exit status');
});

await check('oversized bodies, announced or not', async () => {
  equal((await ask(server, 'POST', '/api/plan', ' '.repeat(200000))).status, 413, 'announced');
  const endless = await new Promise(done => {
    /* chunks without end */
    const socket = net.connect(server.port, '127.0.0.1', () => {
      socket.write(
        `POST /api/plan HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: ` +
        `application/json\r\nTransfer-Encoding: chunked\r\n\r\n`,
      );
      const chunk = `4000\r\n${' '.repeat(0x4000)}\r\n`;
      let sent = 0;
      const more = () => {
        if (socket.destroyed) return;
        sent += 0x4000;
        if (sent > 1 << 28) {
          socket.destroy();
          done('not cut');
        } else if (socket.write(chunk)) setImmediate(more);
        else socket.once('drain', more);
      };
      more();
    });
    socket
      .on('error', () => done('cut'))
      .on('close', () => done('cut'))
      .resume();
  });
  equal(endless, 'cut', 'endless chunks');
  const header = await raw(
    server,
    `GET / HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nX: ${'x'.repeat(1 << 20)}\r\n\r\n`,
  );
  ok(!header.startsWith('HTTP/1.1 200'), 'a header of a megabyte');
  for (const junk of [
    '\r\n\r\n',
    'GET\r\n\r\n',
    '\x16\x03\x01\x00',
    'POST /api/plan HTTP/1.1\r\nContent-Length: -5\r\n\r\n',
    'GET / HTTP/9.9\r\n\r\n',
    '\x00'.repeat(4096),
  ])
    await raw(server, junk);
  ok(rss(server) < atRest + 250, `${rss(server)} MiB, ${atRest} at rest`);
  await alive(server);
});

await check('slow clients are cut, others answered meanwhile', async () => {
  const slow = await Promise.all(
    [...Array(120)].map(
      (_, i) =>
        new Promise(done => {
          const socket = net.connect(server.port, '127.0.0.1', () => {
            if (i % 3)
              socket.write(
                i % 3 === 1
                  ? 'GET / HT'
                  : `POST /api/plan HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: ` +
                    `application/json\r\nContent-Length: 1000\r\n\r\n{`,
              );
            done(socket);
          });
          socket.on('error', () => {});
        }),
    ),
  );
  const cut = Promise.all(
    slow.map(
      s =>
        new Promise(done => {
          s.resume();
          if (s.destroyed) done();
          else s.on('close', done);
        }),
    ),
  );
  const drip = setInterval(
    () =>
      slow.forEach((s, i) => {
        if (i % 3 && !s.destroyed) s.write(' ');
      }),
    300,
  ); /* a byte now and then does not keep it open */
  await alive(server);
  equal((await ask(server, 'POST', '/api/run', scenario)).status, 200, 'a run meanwhile');
  await cut;
  clearInterval(drip);
  const many = [...Array(400)].map(() =>
    net.connect(server.port, '127.0.0.1').on('error', () => {}),
  ); /* more than it holds */
  await new Promise(done => setTimeout(done, 200));
  many.forEach(s => s.destroy());
  await new Promise(done => setTimeout(done, 200));
  await alive(server);
});

await check('a client that goes away takes its work with it', async () => {
  const socket = net.connect(server.port, '127.0.0.1'),
    body = scenario.replace('"global_batch_size": 128', '"global_batch_size": 16384');
  socket.write(
    `POST /api/run HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\nContent-Type: application/json\r\nContent-Length: ` +
    `${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
  while (children(server).length === 0) await new Promise(done => setTimeout(done, 5));
  socket.destroy();
  for (let i = 0; i < 60 && children(server).length; i++) await new Promise(done => setTimeout(done, 25));
  equal(children(server).length, 0, 'processes left');
  await alive(server);
});

await check('a search that nobody asks about any more is stopped', async () => {
  await ask(server, 'POST', '/api/plan', large);
  while (children(server).length === 0) await new Promise(done => setTimeout(done, 5));
  for (let i = 0; i < 400 && children(server).length; i++) await new Promise(done => setTimeout(done, 25));
  equal(children(server).length, 0, 'processes left');
  await alive(server);
});

/* What comes as server-sent events until the stream ends, or `enough` says so. */
const events = (server, id, enough = () => false) =>
  new Promise((done, failed) => {
    const list = [],
      path = `/api/plan/${id}/events`,
      request = http.get({host: '127.0.0.1', port: server.port, path, agent: false}, reply => {
        let text = '';
        equal(reply.headers['content-type'], 'text/event-stream', 'type');
        equal(reply.headers['transfer-encoding'], 'chunked', 'encoding');
        reply.setEncoding('utf8').on('data', d => {
          text += d;
          for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2))
            list.push(JSON.parse(text.slice(0, end).replace(/^data: /, '')));
          if (enough(list)) {
            request.destroy();
            done(list);
          }
        });
        reply.on('end', () => done(list)).on('error', () => done(list));
      });
    request.on('error', failed);
  });

await check('a search tells what it has found while it goes on, and ends with all of it', async () => {
  const {id} = JSON.parse((await ask(server, 'POST', '/api/plan', small)).text),
    list = await events(server, id),
    last = list[list.length - 1];
  equal(last.state, 'done', 'last');
  ok(list.slice(0, -1).every(e => ['waiting', 'running'].includes(e.state)), list.map(e => e.state).join());
  equal(
    JSON.stringify(last),
    JSON.stringify(JSON.parse((await ask(server, 'GET', `/api/plan/${id}`)).text)),
    'the last and what is kept',
  );
  equal((await events(server, id)).length, 1, 'of a search that is over');
  equal((await ask(server, 'GET', '/api/plan/none/events')).status, 404, 'unknown');
  equal((await ask(server, 'POST', `/api/plan/${id}/events`, '{}')).status, 405, 'POST');
});

await check('one who watches a search and hangs up stops it', async () => {
  const {id} = JSON.parse((await ask(server, 'POST', '/api/plan', large)).text);
  const list = await events(server, id, l => l.some(e => e.plan && e.plan.best.length));
  ok(list.some(e => e.plan && e.plan.done < 1), 'nothing was said while it searched');
  for (let i = 0; i < 80 && children(server).length; i++) await new Promise(done => setTimeout(done, 25));
  equal(children(server).length, 0, 'processes left');
  await alive(server);
});

/* A socket that has asked for the events of a search and reads none of them. */
const watch = (server, id) =>
  new Promise(done => {
    const socket = net.connect(server.port, '127.0.0.1', () => {
      socket.pause();
      socket.write(`GET /api/plan/${id}/events HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n\r\n`, () => done(socket));
    });
    socket.on('error', () => {});
  });
const gone = async (server, ms) => {
  for (let t = 0; t < ms && children(server).length; t += 25) await new Promise(done => setTimeout(done, 25));
  return children(server).length === 0;
};

await check('the last of those who watch stops a search, also one who resets the connection', async () => {
  const {id} = JSON.parse((await ask(server, 'POST', '/api/plan', large)).text),
    watchers = [await watch(server, id), await watch(server, id)];
  while (children(server).length === 0) await new Promise(done => setTimeout(done, 5));
  await new Promise(done => setTimeout(done, 600)); /* something lies there unread */
  watchers[0].resetAndDestroy();
  ok(!(await gone(server, 1000)), 'stopped while another watched');
  watchers[1].resetAndDestroy();
  ok(await gone(server, 2000), 'processes left');
  await alive(server);
});

await check('those who hang up leave no descriptor behind', async () => {
  const open_files = () => readdirSync(`/proc/${server.child.pid}/fd`).length,
    before = open_files();
  for (let i = 0; i < 6; i++) {
    const {id} = JSON.parse((await ask(server, 'POST', '/api/plan', large)).text),
      socket = await watch(server, id);
    await new Promise(done => setTimeout(done, 300));
    i % 2 ? socket.resetAndDestroy() : socket.destroy();
    ok(await gone(server, 2000), 'processes left');
  }
  await new Promise(done => setTimeout(done, 500));
  ok(open_files() <= before + 1, `${open_files()} open files, ${before} before`);
  await alive(server);
});

/* --- in the browser --------------------------------------------------------------------------------------------- */
for (const [width, colorScheme] of [
  [1280, 'light'],
  [390, 'dark'],
])
  await check(`plan, watch, compare, take away at ${width} pixels, ${colorScheme}`, async () => {
    const page = await open(at, {width, colorScheme});
    await page.locator('#live-search').waitFor();
    await page.locator('#live-model').fill('llama3-8b');
    await page.locator('#live-machine').fill('h100-sxm');
    await page.locator('#live-gpus').fill('8');
    await page.locator('#live-batch').fill('16');
    await page.locator('#live-batch').blur();
    await page.waitForFunction(() =>
      /"llama3-8b"[^]*"global_batch_size": 16/.test(document.querySelector('#live-request').value),
    );
    const wanted = await moesim(
      'plan',
      '-m',
      'llama3-8b',
      '-w',
      'h100-sxm',
      '-g',
      '8',
      '-p',
      'bf16',
      '-s',
      '4096',
      '-b',
      '16',
      '--write-request',
      '-',
    );
    equal(
      JSON.stringify(JSON.parse(await page.locator('#live-request').inputValue())),
      JSON.stringify(JSON.parse(wanted.stdout)),
      'the request follows the form',
    );
    await page.locator('#live-search').click();
    await page.locator('#live-compare:not([hidden])').waitFor();
    ok((await page.locator('#plan tbody tr').count()) >= 2, 'ranking');
    const file = join(folder, `best-${width}.json`),
      [download] = await Promise.all([
        page.waitForEvent('download'),
        page.locator('button[aria-label="Download the scenario of layout 1"]').click(),
      ]);
    await download.saveAs(file);
    const best = JSON.parse((await moesim('run', '--json', file)).stdout),
      shown = await page.locator('#plan tbody tr').first().innerText();
    ok(best.feasible && shown.includes(Math.round(best.tokens_per_s_per_gpu).toLocaleString('en-US')), shown);
    await page.locator('button[aria-label="launch layout 1"]').click();
    ok(
      (await page.locator('#plan pre.flags').innerText()).includes('--pipeline-model-parallel-size'),
      'launch arguments',
    );
    await page.locator('#live-compare').click();
    await page.locator('#compare table').first().waitFor();
    await page.locator('button[aria-label="Show layout 2"]').click();
    await page
      .waitForFunction(() => !document.querySelector('#compare') && document.querySelector('#timeline canvas'))
      .catch(async e => {
        throw new Error(`${e.message} It says: ${await page.locator('#plan [role=status]').allInnerTexts()}`);
      });
    ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'overflow');
    equal(page.complaints.join('; '), '', 'complaints');
    ok(
      page.asked.every(u => u.startsWith(at) || u.startsWith('data:') || u.startsWith('blob:')),
      page.asked.join(' '),
    );
    const [kept] = await Promise.all([
      page.waitForEvent('download'),
      page.locator('button[aria-label="Download the page of layout 1"]').click(),
    ]);
    await kept.saveAs(join(folder, `page-${width}.html`));
    const alone = await open(`file://${join(folder, `page-${width}.html`)}`, {width, colorScheme});
    await alone.locator('#timeline canvas').first().waitFor();
    equal(alone.complaints.join('; '), '', 'complaints of the page alone');
    await alone.close();
    await page.locator('#plan summary').click();
    await page.locator('#live-request').fill('{"schema":1}');
    await page.locator('#live-search').click();
    await page.locator('#plan [role=alert]').waitFor();
    await page.close();
  });

await check('a budget, the address, and files of the user', async () => {
  const page = await open(`${at}#model=llama3-70b&machine=h100-sxm&gpus=64&batch=128&tokens=15T`),
    request = async () => JSON.parse(await page.locator('#live-request').inputValue()),
    holds = text => page.waitForFunction(t => document.querySelector('#live-request').value.includes(t), text),
    give = (name, json) =>
      page
        .locator('#live-file')
        .setInputFiles({name, mimeType: 'application/json', buffer: Buffer.from(JSON.stringify(json))});
  await holds('training_tokens');
  equal((await request()).plan.training_tokens, 15e12, 'tokens');
  equal((await request()).model, 'llama3-70b', 'model of the address');
  await page.locator('#live-gpu_hour').fill('2.50');
  await page.locator('#live-gpu_hour').blur();
  await holds('gpu_hour_price');
  ok(page.url().includes('gpu_hour=2.50') && page.url().includes('gpus=64'), page.url());
  await page.locator('#live-max_memory').fill('60GiB');
  await page.locator('#live-max_memory').blur();
  await holds('"max_memory_fraction": 0.75');
  await give('slow.json', {base: 'h100-sxm', nic_Bps: 25e9});
  await holds('"nic_Bps": 25000000000');
  await give('half.json', {base: 'llama3-70b', num_layers: 40});
  await holds('"num_layers": 40');
  equal((await request()).hardware.base, 'h100-sxm', 'both files');
  await give('mine.json', JSON.parse(scenario));
  await page.locator('#summary').waitFor();
  await give('request.json', JSON.parse(small));
  await holds('"top": 2');
  await give('other.json', {a: 1});
  await page.waitForFunction(() => /is no model/.test(document.querySelector('#plan [role=status]').textContent));
  equal(page.complaints.join('; '), '', 'complaints');
  await page.close();
});

/* --- the end ---------------------------------------------------------------------------------------------------- */
await check('ends cleanly', async () => {
  server.child.kill('SIGTERM');
  equal(await server.ended, 0, 'exit status');
  equal(
    server.err.replace(/.*(GLib|Warning).*\n/g, m => m),
    '',
    'standard error',
  );
});

const running = pid => {
  try {
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z');
  } catch (e) {
    return false;
  }
};
await check('a server that ends has nothing to complain of those who wait', async () => {
  const ending = await serve(),
    waiting = Array.from({length: 3}, () => ask(ending, 'POST', '/api/page', scenario).catch(() => null));
  while (children(ending).length === 0) await new Promise(done => setTimeout(done, 5));
  ending.child.kill('SIGTERM');
  equal(await ending.ended, 0, 'exit status');
  await Promise.all(waiting);
  equal(ending.err, '', 'standard error');
});

await check('a server that is killed leaves no worker behind', async () => {
  const victim = await serve();
  for (let i = 0; i < 2; i++) await ask(victim, 'POST', '/api/plan', large);
  while (children(victim).length === 0) await new Promise(done => setTimeout(done, 5));
  const pids = children(victim);
  victim.child.kill('SIGKILL');
  await victim.ended;
  for (let i = 0; i < 200 && pids.some(running); i++) await new Promise(done => setTimeout(done, 25));
  equal(pids.filter(running).length, 0, 'workers left');
  for (const n of readdirSync(tmpdir()).filter(n => n.startsWith('moesim-serve-')))
    rmSync(join(tmpdir(), n), {recursive: true, force: true}); /* it could not */
});

await check('a search is stopped when its time is over, and with the server', async () => {
  const short = await serve('--time', '1'),
    id = JSON.parse((await ask(short, 'POST', '/api/plan', large)).text).id,
    now = await over(short, id);
  ok(['stopped', 'done'].includes(now.state), now.state);
  for (let i = 0; i < 4; i++) await ask(short, 'POST', '/api/plan', large);
  while (children(short).length === 0) await new Promise(done => setTimeout(done, 5));
  const pids = children(short);
  short.child.kill('SIGINT');
  equal(await short.ended, 0, 'exit status');
  ok(
    pids.every(pid => {
      try {
        process.kill(Number(pid), 0);
        return false;
      } catch (e) {
        return true;
      }
    }),
    'a worker outlives the server',
  );
  equal(short.err, '', 'standard error');
  equal(left(), folders, 'folders left behind');
});

await finish();
