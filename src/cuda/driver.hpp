#pragma once

#include <cuda.h>

namespace ferry::cuda {

// The driver's functions for virtual memory, found at run time: nothing links libcuda.
struct Driver {
  decltype(&cuMemGetAllocationGranularity) get_granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
};

// Throws kUnavailable where there is no driver, or one too old, naming both versions.
[[nodiscard]] const Driver& driver();

// Throws kSystem (kNoResource for a shortage of memory) with the driver's words.
void check_driver(CUresult status, const char* what);

}  // namespace ferry::cuda
