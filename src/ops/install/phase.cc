#include "ops/install/phase.hpp"

namespace ferry::ops {

const char* status_name(PhaseStatus status) noexcept {
  switch (status) {
    case PhaseStatus::kDone: return "done";
    case PhaseStatus::kDue: return "due";
    case PhaseStatus::kRebootDue: return "reboot due";
    case PhaseStatus::kNotApplicable: return "not needed";
    case PhaseStatus::kByHand: return "by hand";
    case PhaseStatus::kStopped: return "stopped";
  }
  return "due";
}

bool is_settled(PhaseStatus status) noexcept {
  return status == PhaseStatus::kDone || status == PhaseStatus::kNotApplicable;
}

}  // namespace ferry::ops
