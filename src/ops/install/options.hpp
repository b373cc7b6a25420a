#pragma once

#include <string>
#include <vector>

namespace ferry::ops {

// What `ferry install` was asked for.
struct InstallOptions {
  std::string stack = "deepep";       // deepep, ferry
  std::string target = "bare-metal";  // bare-metal, gke-cos
  std::string prefix = "/opt/deepep";
  std::string nic_handler = "gpu";  // gpu, cpu
  std::string nvshmem = "source";   // source, archive, wheel, deb, conda
  std::string arch;                 // "10.0"; empty: that of the GPUs found
  std::string user = "root";        // whom the prefix belongs to; set by who calls
  long user_id = -1;                // the same as a number; -1: not known
  std::string source;               // of FerryEP, stack ferry; empty: the working folder
  std::vector<std::string> only;    // phases by number or id
  std::string from;
  bool is_system_python = false;
  bool is_unpinned_accepted = false;
  bool switches_cuda = false;  // an existing /usr/local/cuda may be pointed at 12.9
  bool is_applied = false;
  bool is_resumed = false;
  bool may_reboot = false;
};

}  // namespace ferry::ops
