"""Launchers' command lines: processes, and the nodes that they are on."""

import pytest

from collsim.calibration import read_log
from collsim.calibration.logs.launchers import launched

ROW = "1048576  262144  float  sum  -1  40.00  26.21  {busbw:.2f}  0\n"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("mpirun -np 16", (16, None)),
        ("mpirun -n 256 -npernode 16 -hostfile hosts -x NCCL_DEBUG=WARN", (256, 16)),
        ("mpirun -np 16 -N 8", (16, 2)),
        ("mpirun -np 16 --map-by ppr:8:node", (16, 2)),
        ("mpirun -np 16 --map-by ppr:8:node:PE=4", (16, 2)),
        ("mpirun -np 16 --map-by ppr:4:socket", (16, None)),
        ("mpirun -H a:8,b:8", (16, 2)),
        ("mpirun -np 2 -H a,b", (2, 2)),
        ("mpirun -np 16 -H a,b -N 8", (16, 2)),
        ("mpirun -np 4 -H a:8,b:8", (4, None)),
        ("mpiexec.hydra -n 24 -ppn 8", (24, 3)),
        ("mpirun -np 20 -N 8", (20, 3)),
        ("srun -n 16 -N 2", (16, 2)),
        ("srun -n16 -N2", (16, 2)),
        ("srun --nodes=4 --ntasks-per-node=8", (32, 4)),
        ("srun -n 16 --ntasks-per-node 4", (16, 4)),
        ("srun -N 2-4 -n 16", (16, None)),
        ("torchrun --nnodes=2 --nproc-per-node=8", (16, 2)),
        ("torchrun --nproc_per_node 8", (8, 1)),
        ("python -m torch.distributed.launch --nproc_per_node=4 --nnodes 3", (12, 3)),
        ("torchrun --nnodes 1:4 --nproc_per_node gpu", (None, None)),
        ("srun: job 7 queued", (None, None)),
    ],
)
def test_processes_and_nodes(command, found):
    assert launched(f"{command} ") == found


@pytest.mark.parametrize(
    "lines",
    [
        "$ mpirun -np 16 -N 8 -x A=B ./build/all_reduce_perf -b 8 -e 1G -g 1\n",
        "mpirun -np 16 \\\n  --map-by ppr:8:node \\\n  ./build/all_reduce_perf -b 8 -e 1G\n",
        "srun --nodes=2 --ntasks-per-node=8 ./all_reduce_perf -b 8\n",
        "mpirun -np 2 -N 1 ./all_reduce_perf -g 8\n",
        "+ torchrun --nnodes 2 --nproc_per_node 8 bench.py\n# op=all_reduce\n",
    ],
)
def test_ranks_of_a_log(tmp_path, lines):
    path = tmp_path / "a.log"
    path.write_text(lines + ROW.format(busbw=26.21 * 30 / 16))
    test = read_log(path, launch="stream").tests[0]
    assert (test.op, test.ranks, test.nodes) == ("all_reduce", 16, 2)
