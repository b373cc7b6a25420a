#pragma once

#include <optional>

#include "base/env.hpp"
#include "boot/store.hpp"

namespace ferry::boot {

// What the launcher's variables say about this rank, or nothing where no launcher is seen. Reads
// through `lookup`, and for a meeting over TCP the secret's file that `env` names; nothing else.
// Order: FERRY_RANK/FERRY_SIZE; torchrun where TORCHELASTIC_RUN_ID marks its own workers (mpirun
// and srun often start torchrun, whose workers inherit their variables); Open MPI
// (OMPI_COMM_WORLD_RANK); Slurm (SLURM_PROCID); a torchrun-like RANK/WORLD_SIZE/MASTER_ADDR.
// FERRY_ADDRESS replaces the address that a launcher gives. A malformed or half-given variable is
// an Error naming it, its value and the accepted form. A group of one has no address.
[[nodiscard]] std::optional<Meeting> read_launch_env(const Lookup& lookup, const Env& env);

// True when a per-process launcher is seen (LOCAL_RANK, OMPI_COMM_WORLD_RANK, SLURM_PROCID, or
// FERRY_RANK); RANK and WORLD_SIZE alone mean nodes in many set-ups.
[[nodiscard]] bool has_process_launcher(const Lookup& lookup);

}  // namespace ferry::boot
