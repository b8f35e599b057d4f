"""Random problems for the engines: graphs, rings, trees, all-to-alls, and many copies of one."""

import numpy as np

from collsim.engine import Problem


def csr(rows):
    return np.cumsum([0] + [len(row) for row in rows]), [x for row in rows for x in row]


def random_problem(rng, n, n_links, *, width=4, back=0.15, tidy=True):
    """A random DAG. *tidy* takes all numbers from short lists, so that many things happen at the same time."""

    def pick(choices, low, high, size):
        return rng.choice(choices, size) if tidy else rng.uniform(low, high, size)

    routes = [rng.choice(n_links, rng.integers(0, width + 1)).tolist() for _ in range(rng.integers(1, n + 1))]
    ptr, links = csr(routes)
    rank = rng.permutation(n)  # predecessors come before in this order, not by id
    order = np.argsort(rank)
    deps = [order[: rank[i]][rng.random(rank[i]) < min(back, 2.5 / max(rank[i], 1))] for i in range(n)]
    dep_ptr, dep = csr(deps)
    size = pick([0.0, 1.0, 1.0, 2.0, 3.0, 0.1], 0.01, 5.0, n) * (rng.random(n) > 0.1)
    latency = pick([0.0, 0.0, 0.5, 1.0, 0.1], 0.0, 1.0, n) * (rng.random(n) > 0.3)
    cap = np.where(rng.random(n) < 0.4, pick([0.25, 0.5, 1.0, 0.3], 0.1, 2.0, n), np.inf)
    weight = pick([1.0, 1.0, 1.0, 2.0, 0.5, 1 / 3, 7.0], 0.1, 3.0, len(links))
    capacity = pick([1.0, 2.0, 3.0, 0.7], 0.5, 3.0, n_links)
    return Problem(capacity, ptr, links, weight, rng.integers(0, len(routes), n), size, latency, cap, dep_ptr, dep)


def ring(rng, ranks, channels, steps, *, jitter, capacity=1.0):
    """Channels of a ring, side by side on a switch: a step waits for the last one of the rank and of its neighbour."""
    step, rank, channel = (x.ravel() for x in np.meshgrid(*map(np.arange, (steps, ranks, channels)), indexing="ij"))
    before = step > 0
    own, left = (((step - 1) * ranks + r) * channels + channel for r in (rank, (rank - 1) % ranks))
    n = len(step)
    return Problem(
        np.full(2 * ranks, capacity),
        2 * np.arange(ranks + 1),
        np.stack([np.arange(ranks), ranks + (np.arange(ranks) + 1) % ranks], axis=1).ravel(),
        np.ones(2 * ranks),
        rank,
        np.ones(n),
        0.3 * (1 + jitter * rng.random(n)),
        np.full(n, 0.4),
        np.concatenate(([0], np.cumsum(2 * before))),
        np.stack([own[before], left[before]], axis=1).ravel(),
    )


def pipelined_trees(rng, ranks, chunks):
    """Two opposed binary trees that send chunk after chunk from the root, and share every rank's links."""
    ids, rows, routes, sizes = {}, [], [], []
    for chunk in range(chunks):
        for tree in (0, 1):
            for child in range(1, ranks):
                parent = (child - 1) // 2
                sender, receiver = (parent, child) if tree == 0 else (ranks - 1 - parent, ranks - 1 - child)
                ids[tree, chunk, child] = len(rows)
                before = [(tree, chunk, parent), (tree, chunk - 1, child)]
                rows.append([ids[key] for key in before if key in ids])
                routes.append([sender, ranks + receiver])
                sizes.append(1.0 + 0.1 * tree)
    ptr, links = csr(routes)
    dep_ptr, dep = csr(rows)
    n = len(rows)
    latency = 0.05 * (1 + 0.2 * rng.random(n))
    return Problem(
        np.ones(2 * ranks),
        ptr,
        links,
        np.ones(len(links)),
        np.arange(n),
        sizes,
        latency,
        np.full(n, np.inf),
        dep_ptr,
        dep,
    )


def crowded_trunks(rng, n):
    """Many flows that come and go on a few wide links, which are full at times, and on narrow ones behind them."""
    trunks, leaves = 3, 12
    routes = [
        [int(rng.integers(0, trunks)), *(trunks + rng.choice(leaves, 2, replace=False)).tolist()] for _ in range(n)
    ]
    ptr, links = csr(routes)
    capacity = np.concatenate([rng.uniform(2.5, 4.0, trunks), rng.uniform(1.0, 3.0, leaves)])
    cap = np.where(rng.random(n) < 0.7, rng.uniform(0.05, 0.4, n), np.inf)
    none = np.zeros(n + 1, dtype=int), []
    latency = rng.uniform(0, 0.1 * n, n)
    return Problem(
        capacity,
        ptr,
        links,
        rng.uniform(0.5, 1.5, len(links)),
        np.arange(n),
        rng.uniform(0.1, 3, n),
        latency,
        cap,
        *none,
    )


def skewed_all_to_all(rng, ranks, *, tidy):
    """All pairs at once over one switch, receivers of unequal popularity, some pairs capped: no two links alike."""
    source, target = np.nonzero(~np.eye(ranks, dtype=bool))
    n = len(source)
    size = 1.0 / (1 + target) * (rng.integers(1, 4, n) if tidy else rng.uniform(0.5, 1.5, n))
    cap = np.where(rng.random(n) < 0.3, rng.choice([0.02, 0.05, 0.1], n) if tidy else rng.uniform(0.01, 0.2, n), np.inf)
    ptr, links = 2 * np.arange(n + 1), np.stack([source, ranks + target], axis=1).ravel()
    none = np.zeros(n + 1, dtype=int), []
    return Problem(np.ones(2 * ranks), ptr, links, np.ones(2 * n), np.arange(n), size, np.zeros(n), cap, *none)


def lifted(rng, p, copies):
    """Copy every transfer and link; hops and dependencies of copy c go to copy c + shift, shift random per hop."""
    p = Problem(*(np.asarray(x) for x in p))
    n, n_links, copy = len(p.route), len(p.capacity_Bps), np.arange(copies)

    def turned(ptr, targets, count):
        """Rows of all copies, copy by copy: each target in the copy that its shift says."""
        shift = rng.integers(0, copies, len(targets))
        return np.concatenate([targets + count * ((c + shift) % copies) for c in copy]).astype(int), np.concatenate(
            [[0], *(ptr[1:] + c * len(targets) for c in copy)]
        )

    links, route_ptr = turned(p.route_ptr, p.route_link, n_links)
    dep, dep_ptr = turned(p.dep_ptr, p.dep, n)
    return Problem(
        np.tile(p.capacity_Bps, copies),
        route_ptr,
        links,
        np.tile(p.route_weight, copies),
        np.concatenate([p.route + c * (len(p.route_ptr) - 1) for c in copy]),
        *(np.tile(x, copies) for x in (p.size_bytes, p.latency_s, p.cap_Bps)),
        dep_ptr,
        dep,
    )


def difference(one, two):
    return np.max(np.abs(one.finish_s - two.finish_s) / np.maximum(one.finish_s, 1e-300), initial=0.0)


def uneven_matrix(rng, ranks, kind):
    """Bytes from row to column: receivers by a power of their rank ("zipf" and the power), or every pair at random."""
    if kind == "lognormal":
        matrix = rng.lognormal(0, 1, (ranks, ranks))
    else:
        popularity = (1 + rng.permutation(ranks)) ** -float(kind.removeprefix("zipf"))
        matrix = popularity * rng.uniform(0.5, 1.5, (ranks, ranks))
    np.fill_diagonal(matrix, 0)
    return np.floor(matrix / matrix.mean() * 1e6)


def sent_at_once(matrix, *, nodes):
    """Every message at once: over one switch, or over nodes of 8 on rails whose pairs share cables 2:1."""
    ranks = len(matrix)
    source, target = np.nonzero(matrix)
    rail, pod = np.arange(ranks) % 8, np.arange(ranks) // 16
    if not nodes:
        capacity, routes = np.full(2 * ranks, 50e9), np.stack([source, ranks + target], axis=1).tolist()
        latency = np.full(len(source), 2e-6)
    else:
        trunks = 8 * (int(pod.max()) + 1)
        capacity = np.repeat([450e9, 50e9, 8 * 50e9], [2 * ranks, 2 * ranks, 2 * trunks])
        routes = [_rail_route(s, t, ranks, trunks, rail, pod) for s, t in zip(source, target, strict=True)]
        latency = np.where(source // 8 == target // 8, 1e-6, 3e-6)
    ptr, links = csr(routes)
    n = len(source)
    return Problem(
        capacity, ptr, links, np.ones(len(links)), np.arange(n), matrix[source, target], latency, np.full(n, np.inf),
        np.zeros(n + 1, dtype=int), [],
    )  # fmt: skip


def _rail_route(source, target, ranks, trunks, rail, pod):
    """Hand over to the GPU of the target's rail, out of its adapter, over the cables of the pod, into the target."""
    if source // 8 == target // 8:
        return [source, ranks + target]
    relay = source // 8 * 8 + rail[target]
    handed = [] if relay == source else [source, ranks + relay]
    between = [4 * ranks + 8 * pod[source] + rail[target], 4 * ranks + trunks + 8 * pod[target] + rail[target]]
    return [*handed, 2 * ranks + relay, 3 * ranks + target, *(between if pod[source] != pod[target] else [])]


def sent_and_answered(matrix, *, nodes):
    """As `sent_at_once`; then each rank that has received everything sends back as much as it got."""
    there = sent_at_once(matrix, nodes=nodes)
    source, target = np.nonzero(matrix)
    n = len(source)
    back = {(s, t): i for i, (s, t) in enumerate(zip(source.tolist(), target.tolist(), strict=True))}
    answers = [back[t, s] for s, t in zip(source.tolist(), target.tolist(), strict=True)]
    dep_ptr, dep = csr([np.flatnonzero(target == target[i]).tolist() for i in range(n)])
    return there._replace(
        route=np.concatenate([np.arange(n), answers]),
        size_bytes=np.tile(there.size_bytes, 2),
        latency_s=np.concatenate([there.latency_s, there.latency_s[answers]]),
        cap_Bps=np.tile(there.cap_Bps, 2),
        dep_ptr=np.concatenate([np.zeros(n, dtype=int), dep_ptr]),
        dep=dep,
    )
