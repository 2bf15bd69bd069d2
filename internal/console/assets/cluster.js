// The processes, and what they need: the leader, the store, counters, leases, clocks.

import { get } from './api.js';
import { h } from './dom.js';
import { bytes, count, duration, many, percent, rows, time } from './format.js';
import { fact, heading, key, table } from './parts.js';

export const title = 'Cluster';

const health = (part, away) =>
  part.ok ? h('span', { class: 'tag' }, 'answers') : h('span', { class: 'tag bad' }, away);
const ms = (x) => (x == null ? null : duration(x / 1000));
const signed = (s) => (s < 0 ? '−' : '+') + duration(Math.abs(s));

export async function show(page) {
  let c = null;
  const draw = () => {
    if (!c) return;
    const { process: p, store, counters, leases, clocks, terms, history } = c;
    const part = (id, text, ...facts) => h('section', { 'aria-labelledby': id, key: id }, h('h2', { id }, text), facts);
    const all = page.status?.pauses?.find((x) => !x.bucket);
    page.draw(
      heading(
        'Cluster',
        all
          ? h('button', { onclick: () => page.resume('') }, 'Resume all moves')
          : h('button', { onclick: () => page.pause('') }, 'Pause all moves'),
      ),
      part(
        'processes-h',
        'Processes',
        table(
          'Processes',
          [
            { head: 'Process', cell: (x) => [x.name, x.here ? h('span', { class: 'quiet' }, ' · this one') : ''] },
            {
              head: 'Moves ranges',
              cell: (x) =>
                x.leads
                  ? h('span', { class: 'tag move' }, x.shards ? `leads shards ${x.shards.join(' ')}` : 'leads')
                  : h('span', { class: 'quiet' }, 'stands by'),
            },
            { head: 'Cleans', cell: (x) => (x.cleaning_shards ? `shards ${x.cleaning_shards.join(' ')}` : '') },
            { head: 'Data centre', cell: (x) => x.data_centre ?? '' },
            { head: 'Version', cell: (x) => [x.version ?? '', x.commit ? h('span', { class: 'quiet' }, ` ${x.commit.slice(0, 12)}`) : ''] },
            { head: 'Schemas', cell: (x) => (x.schemas ? `${x.schemas[0]} to ${x.schemas[1]}` : '') },
            {
              head: 'Since',
              cell: (x) => [
                x.since ? time(x.since) : '',
                x.silent ? h('span', { class: 'tag bad' }, `silent since ${time(x.seen)}`) : '',
              ],
            },
            { head: 'Admin address', cell: (x) => (x.admin ? h('a', { href: `${x.admin}/console/` }, x.admin) : '') },
          ],
          c.processes ?? [],
          { key: (x) => x.name + x.admin },
        ),
        c.leader
          ? h(
              'p',
              { class: 'quiet small' },
              `${c.leader.name || c.leader.id} leads shard 0 since ${time(c.leader.since)}, ` +
                `for ${duration(leases.leader_left_s ?? 0)} more unless it renews its lease.`,
            )
          : h('p', { class: 'quiet small' }, 'Embedded: one process has the data directory, and moves ranges.'),
        c.processes_error
          ? h('p', { class: 'problem' }, `Processes of other data centres may be missing: ${c.processes_error}`)
          : null,
      ),
      h(
        'div',
        { class: 'pair' },
        part(
          'store-h',
          'Store',
          h(
            'dl',
            { class: 'facts' },
            fact('Kind', store.kind === 'embedded' ? 'embedded: a data directory' : 'Apache Cassandra'),
            fact('Health', health(store, 'does not answer')),
            fact('A read takes', ms(store.latency_ms)),
            fact(
              'Free space',
              store.disk_free_bytes
                ? `${bytes(store.disk_free_bytes)} of ${bytes(store.disk_bytes)}, ` +
                    percent(store.disk_free_bytes / store.disk_bytes)
                : null,
            ),
          ),
          store.error ? h('p', { class: 'problem' }, store.error) : null,
        ),
        part(
          'counters-h',
          'Counters',
          h(
            'dl',
            { class: 'facts' },
            fact(
              'Kept in',
              { directory: 'the data directory', redis: 'Redis', none: 'nowhere: nothing is split by itself' }[
                counters.kind
              ] ?? counters.kind,
            ),
            counters.kind !== 'none' ? fact('Health', health(counters, 'do not answer')) : null,
            fact('A read takes', ms(counters.latency_ms)),
            fact('Away since', counters.away_since ? time(counters.away_since) : null),
          ),
          counters.error ? h('p', { class: 'problem' }, counters.error) : null,
          counters.kind === 'none'
            ? h('p', {}, 'Start the processes with ', h('code', {}, '--counter redis://…'), ' to have sizes counted.')
            : null,
        ),
        part(
          'leases-h',
          'Leases',
          h(
            'dl',
            { class: 'facts' },
            fact('Kind', leases.kind === 'timed' ? 'by time' : 'counted, in one process'),
            fact('Length', leases.length_s ? duration(leases.length_s) : null),
            fact(
              'Time left',
              leases.map_clocks
                ? `${duration(leases.left_s ?? 0)} at least, unless they are renewed, of ${many(leases.map_clocks, 'map clock')}`
                : null,
            ),
            fact('Renewed', leases.renewals == null ? null : many(leases.renewals, 'time')),
            fact('Refused', leases.refusals == null ? null : many(leases.refusals, 'time')),
            fact('Maps read', leases.root_reads == null ? null : many(leases.root_reads, 'time')),
            fact('Failed polls', leases.poll_failures == null ? null : many(leases.poll_failures, 'poll')),
          ),
        ),
        part(
          'clocks-h',
          'Clocks',
          clocks?.known
            ? [
                h(
                  'dl',
                  { class: 'facts' },
                  fact('Error at most', duration(clocks.bound_s)),
                  fact('Servers apart', duration(clocks.apart_s)),
                  fact('This process', `${signed(clocks.ahead_s)} against the servers’ time`),
                ),
                clocks.servers?.length
                  ? table(
                      'Clocks of servers',
                      [
                        { head: 'Server', cell: (s) => s.server },
                        { head: 'Ahead', number: true, cell: (s) => signed(s.ahead_s) },
                        { head: 'Error at most', number: true, cell: (s) => duration(s.bound_s) },
                      ],
                      clocks.servers,
                    )
                  : null,
              ]
            : h(
                'p',
                { class: 'quiet' },
                clocks
                  ? 'The servers’ clocks are not known yet.'
                  : 'Embedded: one process, one clock. Nothing has to agree.',
              ),
        ),
        terms
          ? part(
              'terms-h',
              'Agreed on by all processes',
              h(
                'dl',
                { class: 'facts' },
                fact('Schema', terms.schema ? `version ${terms.schema}` : 'from before there were versions'),
                fact('Lease', terms.lease_s ? duration(terms.lease_s) : 'not said yet'),
                fact('Clocks may differ by', terms.max_clock_skew_s ? duration(terms.max_clock_skew_s) : 'not said yet'),
                fact('Sizes are', terms.sizes),
                fact(
                  'Ranges have',
                  terms.max_rows ? `${count(terms.min_rows ?? 0)} to ${rows(terms.max_rows)}, by who was started last` : null,
                ),
                fact('At most', terms.max_bytes ? bytes(terms.max_bytes) : null),
              ),
              terms.error ? h('p', { class: 'problem' }, terms.error) : null,
            )
          : null,
        part(
          'process-h',
          'This process',
          h(
            'dl',
            { class: 'facts' },
            fact('Name', p.name),
            fact('Version', [p.version, p.commit ? [' (', key(p.commit.slice(0, 12)), ')'] : '']),
            fact('Built with', p.go),
            fact('Runs since', `${time(p.started)}, ${duration((Date.now() - new Date(p.started)) / 1000)}`),
            fact('Memory', p.memory_bytes ? bytes(p.memory_bytes) : null),
            fact('Goroutines', p.goroutines ? many(p.goroutines, 'goroutine') : null),
          ),
        ),
        history
          ? part(
              'history-h',
              'History of the key visualizer',
              h(
                'dl',
                { class: 'facts' },
                fact('Since', history.since ? time(history.since) : 'nothing yet'),
                fact('Kept', `${many(history.columns, 'column')} of ten seconds, minutes and hours`),
                fact('Memory', `${bytes(history.bytes)} of at most ${bytes(history.limit_bytes)}`),
                fact(
                  'Left out',
                  history.omitted_buckets ? `${many(history.omitted_buckets, 'bucket')} of the last sample` : null,
                ),
                fact('File', history.file ? key(history.file) : 'none: a restart forgets it'),
              ),
              history.error ? h('p', { class: 'problem' }, history.error) : null,
            )
          : null,
      ),
    );
  };
  page.every(5, async () => {
    c = await get('/v1/cluster', {}, page.signal);
    draw();
  });
  page.on('known', draw);
}
