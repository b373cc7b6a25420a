#include "cuda/driver.hpp"

#include <cuda_runtime.h>

#include "base/error.hpp"
#include "cuda/check.hpp"

namespace ferry::cuda {

namespace {

// 12080: "12.8".
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

template <typename Function>
void find(Function& function, const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  // Functions as CUDA 12.0 defined them.
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
  FERRY_CHECK(status == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr,
              ErrorCode::kUnavailable, "the CUDA driver has no {}; try: a newer driver", name);
  function = reinterpret_cast<Function>(found);
}

Driver load_driver() {
  int driver_version = 0;
  int runtime_version = 0;
  cudaDriverGetVersion(&driver_version);
  cudaRuntimeGetVersion(&runtime_version);
  FERRY_CHECK(driver_version > 0, ErrorCode::kUnavailable,
              "there is no CUDA driver on this host (this build uses CUDA {}); try: install the "
              "NVIDIA driver, or Device::cpu()",
              version_text(runtime_version));
  // Within one major version any driver serves.
  FERRY_CHECK(driver_version / 1000 >= runtime_version / 1000, ErrorCode::kUnavailable,
              "the driver supports CUDA {}, this build needs CUDA {}; try: a newer driver, or a "
              "build with an older toolkit",
              version_text(driver_version), version_text(runtime_version / 1000 * 1000));
  Driver out;
  find(out.get_granularity, "cuMemGetAllocationGranularity");
  find(out.create, "cuMemCreate");
  find(out.release, "cuMemRelease");
  find(out.export_handle, "cuMemExportToShareableHandle");
  find(out.import_handle, "cuMemImportFromShareableHandle");
  find(out.reserve, "cuMemAddressReserve");
  find(out.free_address, "cuMemAddressFree");
  find(out.map, "cuMemMap");
  find(out.unmap, "cuMemUnmap");
  find(out.set_access, "cuMemSetAccess");
  find(out.error_string, "cuGetErrorString");
  return out;
}

}  // namespace

const Driver& driver() {
  static const Driver instance = load_driver();
  return instance;
}

void check_driver(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  const char* words = "unknown error";
  driver().error_string(status, &words);
  FERRY_THROW(status == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kNoResource : ErrorCode::kSystem,
              "{}: the CUDA driver says '{}' ({})", what, words, static_cast<int>(status));
}

}  // namespace ferry::cuda
