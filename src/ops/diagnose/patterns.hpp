#pragma once

#include <span>

namespace ferry::ops {

// What a line of a log can be to the diagnosis.
enum class Role {
  kError,      // something that has a cause; the earliest one counts
  kContext,    // says nothing alone, but decides between causes
  kSecondary,  // follows from an earlier error, of this rank or of another
};

// Lines that the rules (rules.cc) look at by name. Every other pattern is kDirect: it leads to its
// cause and nowhere else.
enum class Signal {
  kDirect,
  kDispatchTimeout,
  kKernelTimeout,
  kMetaTimeout,
  kCounterMissing,
  kCounterPresent,
  kPeermemMissing,
  kPeermemLoaded,
  kTransportFailed,
  kGpuBuffers,
  kDevxUar,
  kGinNone,
  kVerbsTag,
  kTwoPorts,
  kAddressHandle,
  kZeroQpn,
  kTrafficClassSyndrome,
  kModifyQp,
  kNoMlx5dv,
  kNoGid,
  kResourceHandle,
  kBufferConstruction,
  kCuMemCreate,
  kLimitedMpg,
  kGibMissing,
  kGlibcTooOld,
  kCooperativeLaunch,
  kBarrierFile,
  kDeallocPd,
  kRocepName,
  kRdmaBandwidth,
  kMlx5Name,
  kLinkLayer,
  kHandlerCpu,
  kHandlerGpu,
  kJit,
  kNvshmemVersion,
  kWheelNvshmem,
  kEnvSetting,
  kWorldSize,
  kNumHosts,
  kPcieGpu,
  kFerryError,
};

// One row of the table. `regex` is RE2's, matched anywhere, in any case; its first group, where it
// has one, is kept as the line's value.
struct Pattern {
  Signal signal;
  Role role;
  const char* cause;  // id in causes.cc; "" where rules decide or nothing is known
  const char* regex;
};

// Every pattern that diagnose knows.
[[nodiscard]] std::span<const Pattern> log_patterns();

}  // namespace ferry::ops
