#pragma once

// The C ABI: everything of the C++ API, for C and for every language that can call C. What each
// function, field and value means stands in the C++ headers (ferry/group.hpp, ferry/exchange.hpp,
// ferry/tensor.hpp); here stands what is particular to C.
//
// Errors. A function that can fail returns FERRY_OK or the status that says what the caller can do,
// and ferry_last_error() gives the message. Outputs come last; on failure a handle is NULL and any
// other output unchanged. NULL where a handle, a value or a place for a result is needed is
// FERRY_INVALID_ARGUMENT. No exception leaves the library.
//
// Handles. Opaque, owned by the caller, freed by ferry_<type>_free(), which accepts NULL and never
// waits for a peer. A handle keeps alive what it needs, so they may be freed in any order. One
// thread per rank uses that rank's handles.
//
// Structs. Begin with their size, set by the caller: `ferry_x v = {.struct_bytes = sizeof v}` or
// ferry_x_init(&v). Zero in any other field, and NULL for a whole struct of options, mean the
// default. A program built with an older header gets the defaults of the fields that it does not
// know; one built with a newer header works as long as the fields that the library does not know
// are zero. `reserved` is zero.
//
// Arrays and strings that the library returns are borrowed: valid while the handle that gave them
// lives. Those given to it are copied. Text is UTF-8.
//
// `stream` is a cudaStream_t or NULL; ignored on the CPU.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef FERRY_API
#define FERRY_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Errors and the version.

typedef int32_t ferry_status;
enum {
  FERRY_OK = 0,
  FERRY_INVALID_ARGUMENT = 1,  // fix the call
  FERRY_UNAVAILABLE = 2,       // a feature or a library is missing here
  FERRY_NO_RESOURCE = 3,       // memory, descriptors or another resource ran out
  FERRY_SYSTEM = 4,            // the operating system refused
  FERRY_TIMEOUT = 5,           // a peer is alive but late; rebuild the group
  FERRY_PEER_LOST = 6,         // a peer died or left; rebuild the group
  FERRY_INTERNAL = 7           // a defect of the library; report it
};

// One line about the last call that failed on this thread; "" before the first. Borrowed until the
// next failing call on this thread.
FERRY_API const char* ferry_last_error(void);

// "ok", "peer lost", ...; "unknown error" for other numbers. Static.
FERRY_API const char* ferry_status_name(ferry_status status);

// "MAJOR.MINOR.PATCH" of the library that is loaded. Static.
FERRY_API const char* ferry_version(void);

// Enumerations. The values are those of the C++ enumerations.

typedef int32_t ferry_dtype;
enum {
  FERRY_DTYPE_BF16 = 1,
  FERRY_DTYPE_FP16 = 2,
  FERRY_DTYPE_FP32 = 3,
  FERRY_DTYPE_FP8_E4M3 = 4,
  FERRY_DTYPE_FP8_E5M2 = 5,
  FERRY_DTYPE_INT32 = 6,
  FERRY_DTYPE_INT64 = 7,
  FERRY_DTYPE_UINT8 = 8,
  FERRY_DTYPE_UINT16 = 9,
  FERRY_DTYPE_UINT32 = 10
};

typedef int32_t ferry_device_kind;
enum { FERRY_DEVICE_KIND_CPU = 0, FERRY_DEVICE_KIND_CUDA = 1 };

typedef int32_t ferry_layout;
enum { FERRY_LAYOUT_BY_RANK = 0, FERRY_LAYOUT_BY_EXPERT = 1, FERRY_LAYOUT_PADDED = 2 };

typedef int32_t ferry_mode;
enum { FERRY_MODE_HIGH_THROUGHPUT = 0, FERRY_MODE_LOW_LATENCY = 1 };

typedef int32_t ferry_sizing;
enum { FERRY_SIZING_EXACT = 0, FERRY_SIZING_WORST_CASE = 1 };

typedef int32_t ferry_duplicates;
enum { FERRY_DUPLICATES_REFUSE = 0, FERRY_DUPLICATES_ACCEPT = 1 };

typedef int32_t ferry_overflow;
enum { FERRY_OVERFLOW_ERROR = 0, FERRY_OVERFLOW_DROP = 1 };

typedef int32_t ferry_quantize;
enum { FERRY_QUANTIZE_NONE = 0, FERRY_QUANTIZE_FP8 = 1, FERRY_QUANTIZE_FP8_UE8M0 = 2 };

typedef int32_t ferry_scale_layout;
enum { FERRY_SCALE_LAYOUT_ROW_MAJOR = 0, FERRY_SCALE_LAYOUT_COLUMN_MAJOR = 1 };

typedef int32_t ferry_gaps;
enum { FERRY_GAPS_UNDEFINED = 0, FERRY_GAPS_ZEROED = 1 };

typedef int32_t ferry_row_order;
enum { FERRY_ROW_ORDER_RANK_ASCENDING = 0, FERRY_ROW_ORDER_HIGHEST_K_ASCENDING = 1 };

typedef int32_t ferry_reduction;
enum {
  FERRY_REDUCTION_PER_NODE = 0,
  FERRY_REDUCTION_PER_RANK = 1,
  FERRY_REDUCTION_WIDE = 2,
  FERRY_REDUCTION_EXACT = 3
};

typedef int32_t ferry_combine_form;
enum { FERRY_COMBINE_FORM_AUTO = 0, FERRY_COMBINE_FORM_PULL = 1, FERRY_COMBINE_FORM_PUSH = 2 };

typedef int32_t ferry_low_latency_form;
enum {
  FERRY_LOW_LATENCY_FORM_AUTO = 0,
  FERRY_LOW_LATENCY_FORM_PACKED = 1,
  FERRY_LOW_LATENCY_FORM_EXPAND = 2
};

// Tensors.

#define FERRY_MAX_DIMS 4

// A tensor that somebody else owns; copied by every call that takes it. num_dims 0, or a NULL
// pointer to a tensor, means "not given".
typedef struct ferry_tensor {
  size_t struct_bytes;
  void* data;
  ferry_dtype dtype;
  int32_t num_dims;
  int64_t shape[FERRY_MAX_DIMS];
  int64_t strides[FERRY_MAX_DIMS];  // in elements
  ferry_device_kind device_kind;
  int32_t device_index;
} ferry_tensor;

// A dense tensor on the CPU. `shape` has num_dims extents; more than FERRY_MAX_DIMS are refused by
// the call that gets the tensor. Tensors that an operation only reads are never written.
static inline ferry_tensor ferry_tensor_dense(const void* data,
                                              ferry_dtype dtype,
                                              int32_t num_dims,
                                              const int64_t* shape) {
  ferry_tensor tensor;
  int64_t stride = 1;
  int32_t dim;
  memset(&tensor, 0, sizeof tensor);
  tensor.struct_bytes = sizeof tensor;
  tensor.data = (void*)(uintptr_t)data;
  tensor.dtype = dtype;
  tensor.num_dims = num_dims;
  if (num_dims < 0 || num_dims > FERRY_MAX_DIMS) return tensor;
  for (dim = num_dims - 1; dim >= 0; --dim) {
    tensor.shape[dim] = shape[dim];
    tensor.strides[dim] = stride;
    stride *= shape[dim];
  }
  return tensor;
}

FERRY_API ferry_status ferry_tensor_num_elements(const ferry_tensor* tensor,
                                                 int64_t* out_num_elements);
FERRY_API ferry_status ferry_tensor_is_dense(const ferry_tensor* tensor, int32_t* out_is_dense);

FERRY_API size_t ferry_dtype_bytes(ferry_dtype dtype);      // 0 for unknown numbers
FERRY_API const char* ferry_dtype_name(ferry_dtype dtype);  // "bf16", ...; static

// Groups.

typedef struct ferry_group ferry_group;
typedef struct ferry_gathered ferry_gathered;

typedef struct ferry_group_config {
  size_t struct_bytes;
  int32_t rank;
  int32_t size;         // 0: 1
  const char* address;  // "unix:NAME" or "HOST:PORT"
  const char* secret;   // NULL or "": FERRY_SECRET_FILE or FERRY_SECRET
  int32_t num_pretended_nodes;
  int32_t reserved;
  int64_t meeting_timeout_ms;
  int64_t arrival_timeout_ms;
  int64_t progress_timeout_ms;
} ferry_group_config;

// Joins the group that the launcher or FERRY_* describes. Blocks until every rank has joined.
FERRY_API ferry_status ferry_group_from_env(ferry_group** out_group);
// 1 where a launcher has described a rank to this process: ferry_group_from_env has something to
// read; else 0.
FERRY_API int32_t ferry_group_is_launched(void);
FERRY_API ferry_status ferry_group_open(const ferry_group_config* config, ferry_group** out_group);
// One member; never blocks.
FERRY_API ferry_status ferry_group_self(ferry_group** out_group);

// What one thread rank does. `group` is borrowed for the call. FERRY_OK, or what went wrong: the
// status of the call that failed, or a number of the caller's own.
typedef ferry_status (*ferry_rank_body)(ferry_group* group, void* user);

// Runs body(group, user) once per rank, each on a thread of its own, and joins them all; `user` is
// shared by all. Returns the status of the lowest rank that failed, with that rank's message.
// `config` may be NULL; its rank and address are ignored.
FERRY_API ferry_status ferry_group_run_threads(int32_t num_ranks,
                                               const ferry_group_config* config,
                                               ferry_rank_body body,
                                               void* user);

FERRY_API ferry_status ferry_group_rank(const ferry_group* group, int32_t* out_rank);
FERRY_API ferry_status ferry_group_size(const ferry_group* group, int32_t* out_size);
FERRY_API ferry_status ferry_group_num_nodes(const ferry_group* group, int32_t* out_num_nodes);
FERRY_API ferry_status ferry_group_node(const ferry_group* group, int32_t* out_node);
FERRY_API ferry_status ferry_group_local_rank(const ferry_group* group, int32_t* out_local_rank);
FERRY_API ferry_status ferry_group_node_of(const ferry_group* group,
                                           int32_t rank,
                                           int32_t* out_node);

// Collective, blocking: the bytes of all ranks, of any length each. For set-up.
FERRY_API ferry_status ferry_group_all_gather(const ferry_group* group,
                                              const void* bytes,
                                              size_t num_bytes,
                                              ferry_gathered** out_gathered);
FERRY_API ferry_status ferry_gathered_from_rank(const ferry_gathered* gathered,
                                                int32_t rank,
                                                const void** out_bytes,
                                                size_t* out_num_bytes);
FERRY_API void ferry_gathered_free(ferry_gathered* gathered);

// Collective, blocking.
FERRY_API ferry_status ferry_group_barrier(const ferry_group* group);
// The group's sticky fault, if there is one. Does not block.
FERRY_API ferry_status ferry_group_check(const ferry_group* group);
// Ends the membership: peers that wait for this rank get FERRY_PEER_LOST. Idempotent, never blocks.
FERRY_API ferry_status ferry_group_leave(ferry_group* group);
// Gives the handle back; the membership ends with the last handle and the last exchange on it.
FERRY_API void ferry_group_free(ferry_group* group);

// Exchanges.

// Letters in shapes: T tokens on this rank, H hidden, K top_k, E experts, R ranks, E_l local
// experts, n rows that this rank receives, S scales per row.

typedef struct ferry_exchange ferry_exchange;
typedef struct ferry_route ferry_route;
typedef struct ferry_delivery ferry_delivery;
// Operations between begin and finish; one type per result.
typedef struct ferry_pending_route ferry_pending_route;
typedef struct ferry_pending_delivery ferry_pending_delivery;
typedef struct ferry_pending_combine ferry_pending_combine;

// The same on every rank, except num_threads, num_sms and device_index.
typedef struct ferry_exchange_config {
  size_t struct_bytes;
  int32_t num_experts;
  int32_t top_k;
  int64_t hidden;  // elements of `dtype`
  int64_t max_tokens;
  ferry_dtype dtype;  // 0: bf16
  ferry_device_kind device_kind;
  int32_t device_index;
  ferry_mode mode;
  ferry_layout layout;
  ferry_duplicates duplicates;
  int64_t expert_alignment;     // rows; 0: 1
  const int32_t* expert_owner;  // NULL: contiguous blocks
  size_t num_expert_owners;     // E, or 0
  int64_t scale_bytes_per_row;
  int64_t max_recv_rows;  // 0: the worst case
  int64_t memory_limit;   // bytes; 0: none
  int64_t arena_bytes;    // 0: two worst-case outputs
  ferry_overflow overflow;
  ferry_row_order row_order;
  ferry_reduction reduction;
  ferry_low_latency_form low_latency_form;
  int32_t num_threads;  // CPU engine; 0: usable cores / ranks
  int32_t num_sms;      // CUDA engine; 0: the plan's choice
  int64_t arrival_timeout_ms;   // 0: the group's
  int64_t progress_timeout_ms;  // 0: the group's
} ferry_exchange_config;

// Bytes per rank.
typedef struct ferry_memory_need {
  size_t struct_bytes;
  int64_t arena_virtual_bytes;
  int64_t delivery_bytes;
  int64_t staging_bytes;
  int64_t control_bytes;
} ferry_memory_need;

// Totals since creation, or of one route.
typedef struct ferry_counters {
  size_t struct_bytes;
  int64_t dispatches;
  int64_t combines;
  int64_t dispatch_logical_bytes;
  int64_t dispatch_wire_bytes;
  int64_t combine_logical_bytes;
  int64_t combine_wire_bytes;
  int64_t memory_bytes_read;
  int64_t memory_bytes_written;
  int64_t staged_bytes;
  int64_t dropped_rows;
  int64_t arena_bytes;
  int64_t arena_peak_bytes;
  int64_t wait_ns;
} ferry_counters;

typedef struct ferry_route_options {
  size_t struct_bytes;
  int32_t has_layout;  // 1: `layout` counts; 0: the exchange's layout
  ferry_layout layout;
  ferry_sizing sizing;
  int32_t reserved;
  int64_t timeout_ms;  // 0: the exchange's
} ferry_route_options;

// Caller memory for a delivery; what is not given is owned by the exchange.
typedef struct ferry_delivery_outputs {
  size_t struct_bytes;
  const ferry_tensor* tokens;
  const ferry_tensor* scales;
  const ferry_tensor* topk_idx;
  const ferry_tensor* topk_weights;
} ferry_delivery_outputs;

typedef struct ferry_dispatch_options {
  size_t struct_bytes;
  const ferry_tensor* topk_weights;  // [T, K] float32
  const ferry_tensor* scales;        // [T, S]
  ferry_quantize quantize;
  ferry_scale_layout scale_layout;
  ferry_gaps gaps;
  int32_t scale_by_weights;  // 0 or 1
  const ferry_delivery_outputs* outputs;
  int64_t timeout_ms;
} ferry_dispatch_options;

typedef struct ferry_combine_options {
  size_t struct_bytes;
  const ferry_tensor* topk_weights;      // [T, K] float32
  const ferry_tensor* bias;              // [T, H] of y's dtype
  const ferry_tensor* second_bias;       // [T, H] of y's dtype
  const ferry_tensor* row_weights;       // float32, the delivery's shape; with combined_weights
  const ferry_tensor* combined_weights;  // [T, K] float32; written
  ferry_combine_form form;
  int32_t reserved;
  int64_t timeout_ms;
} ferry_combine_options;

// Collective. The exchange keeps the group's membership alive.
FERRY_API ferry_status ferry_exchange_create(const ferry_group* group,
                                             const ferry_exchange_config* config,
                                             ferry_exchange** out_exchange);
// What create would need per rank, without allocating.
FERRY_API ferry_status ferry_exchange_bytes_needed(const ferry_exchange_config* config,
                                                   int32_t num_ranks,
                                                   ferry_memory_need* out_need);

// Collective. topk_idx: [T, K] int32 or int64, copied. Blocks for the counts in exact sizing.
FERRY_API ferry_status ferry_exchange_route(ferry_exchange* exchange,
                                            const ferry_tensor* topk_idx,
                                            const ferry_route_options* options,
                                            void* stream,
                                            ferry_route** out_route);
FERRY_API ferry_status ferry_exchange_begin_route(ferry_exchange* exchange,
                                                  const ferry_tensor* topk_idx,
                                                  const ferry_route_options* options,
                                                  void* stream,
                                                  ferry_pending_route** out_pending);

// Collective. x: [T, H].
FERRY_API ferry_status ferry_exchange_dispatch(ferry_exchange* exchange,
                                               const ferry_route* route,
                                               const ferry_tensor* x,
                                               const ferry_dispatch_options* options,
                                               void* stream,
                                               ferry_delivery** out_delivery);
FERRY_API ferry_status ferry_exchange_begin_dispatch(ferry_exchange* exchange,
                                                     const ferry_route* route,
                                                     const ferry_tensor* x,
                                                     const ferry_dispatch_options* options,
                                                     void* stream,
                                                     ferry_pending_delivery** out_pending);

// Collective. y: the delivery's shape; out: [T, H] of y's dtype, written.
FERRY_API ferry_status ferry_exchange_combine(ferry_exchange* exchange,
                                              const ferry_route* route,
                                              const ferry_tensor* y,
                                              const ferry_tensor* out,
                                              const ferry_combine_options* options,
                                              void* stream);
FERRY_API ferry_status ferry_exchange_begin_combine(ferry_exchange* exchange,
                                                    const ferry_route* route,
                                                    const ferry_tensor* y,
                                                    const ferry_tensor* out,
                                                    const ferry_combine_options* options,
                                                    void* stream,
                                                    ferry_pending_combine** out_pending);

// Collective; moves scalars only. combined_weights: [T, K] float32, written.
FERRY_API ferry_status ferry_exchange_combine_weights(ferry_exchange* exchange,
                                                      const ferry_route* route,
                                                      const ferry_tensor* row_weights,
                                                      const ferry_tensor* combined_weights,
                                                      void* stream);

// Names the outputs of the next dispatch on `route` early. Local.
FERRY_API ferry_status ferry_exchange_post(ferry_exchange* exchange,
                                           const ferry_route* route,
                                           const ferry_delivery_outputs* outputs,
                                           void* stream);

// Collective: new owners, one per expert, for later routes. The array is copied.
FERRY_API ferry_status ferry_exchange_set_owner_map(ferry_exchange* exchange,
                                                    const int32_t* expert_owner,
                                                    size_t num_expert_owners,
                                                    void* stream);

// Memory that peers read and write directly: the exchange's, 256-byte aligned, until deallocate or
// destroy.
FERRY_API ferry_status ferry_exchange_allocate(ferry_exchange* exchange,
                                               int64_t bytes,
                                               void* stream,
                                               void** out_pointer);
FERRY_API ferry_status ferry_exchange_allocate_tensor(ferry_exchange* exchange,
                                                      ferry_dtype dtype,
                                                      int32_t num_dims,
                                                      const int64_t* shape,
                                                      void* stream,
                                                      ferry_tensor* out_tensor);
// NULL is accepted, as by free().
FERRY_API ferry_status ferry_exchange_deallocate(ferry_exchange* exchange,
                                                 void* pointer,
                                                 void* stream);

// The exchange's sticky fault, if there is one. Does not block.
FERRY_API ferry_status ferry_exchange_check(const ferry_exchange* exchange);
// wait_ns_by_peer: the caller's array of num_peers = R entries, or NULL with 0.
FERRY_API ferry_status ferry_exchange_counters(const ferry_exchange* exchange,
                                               ferry_counters* out_counters,
                                               int64_t* wait_ns_by_peer,
                                               size_t num_peers);
// The configuration in force; its expert_owner is borrowed until the exchange is destroyed.
FERRY_API ferry_status ferry_exchange_get_config(const ferry_exchange* exchange,
                                                 ferry_exchange_config* out_config);
FERRY_API ferry_status ferry_exchange_num_local_experts(const ferry_exchange* exchange,
                                                        int32_t* out_num_local_experts);

// Local, idempotent, never waits for a peer. Routes and deliveries refuse use afterwards.
FERRY_API ferry_status ferry_exchange_destroy(ferry_exchange* exchange);
// Destroys and gives the handle back.
FERRY_API void ferry_exchange_free(ferry_exchange* exchange);

// Chooses a replica per selection, local. replicas_of: [num_logical, max_replicas], row l lists the
// physical slots of logical expert l, then -1. logical_topk and physical_topk (written): [T, K].
FERRY_API ferry_status ferry_map_replicas(const ferry_tensor* logical_topk,
                                          const int32_t* replicas_of,
                                          size_t num_logical,
                                          size_t max_replicas,
                                          const ferry_tensor* physical_topk);

// Routes.

FERRY_API ferry_status ferry_route_num_tokens(const ferry_route* route, int64_t* out_num_tokens);
FERRY_API ferry_status ferry_route_layout(const ferry_route* route, ferry_layout* out_layout);
FERRY_API ferry_status ferry_route_sizing(const ferry_route* route, ferry_sizing* out_sizing);
// These four exist in exact sizing only. Arrays: [E_l], [E_l], [R].
FERRY_API ferry_status ferry_route_num_recv_rows(const ferry_route* route, int64_t* out_num_rows);
FERRY_API ferry_status ferry_route_expert_counts(const ferry_route* route,
                                                 const int64_t** out_counts,
                                                 size_t* out_num_counts);
FERRY_API ferry_status ferry_route_aligned_expert_counts(const ferry_route* route,
                                                         const int64_t** out_counts,
                                                         size_t* out_num_counts);
FERRY_API ferry_status ferry_route_tokens_from_rank(const ferry_route* route,
                                                    const int64_t** out_counts,
                                                    size_t* out_num_counts);
FERRY_API ferry_status ferry_route_counters(const ferry_route* route,
                                            ferry_counters* out_counters,
                                            int64_t* wait_ns_by_peer,
                                            size_t num_peers);
FERRY_API void ferry_route_free(ferry_route* route);

// Deliveries.

// Each fills *out_tensor (struct_bytes set by the caller) with a view that is valid while the
// handle and its memory are: the fourth dispatch after may reuse it. num_dims is 0 where there is
// none.
FERRY_API ferry_status ferry_delivery_tokens(const ferry_delivery* delivery,
                                             ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_scales(const ferry_delivery* delivery,
                                             ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_topk_idx(const ferry_delivery* delivery,
                                               ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_topk_weights(const ferry_delivery* delivery,
                                                   ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_row_source(const ferry_delivery* delivery,
                                                 ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_row_expert(const ferry_delivery* delivery,
                                                 ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_num_rows(const ferry_delivery* delivery,
                                               ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_expert_counts(const ferry_delivery* delivery,
                                                    ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_aligned_expert_counts(const ferry_delivery* delivery,
                                                            ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_expert_offsets(const ferry_delivery* delivery,
                                                     ferry_tensor* out_tensor);
FERRY_API ferry_status ferry_delivery_source_offsets(const ferry_delivery* delivery,
                                                     ferry_tensor* out_tensor);
// Makes room in the exchange's ring of three.
FERRY_API void ferry_delivery_free(ferry_delivery* delivery);

// Pending operations.

// finish blocks until the operation is complete on this rank and gives its result, once; the handle
// is freed afterwards. Freeing an unfinished one is allowed: the next operation finishes it first.
FERRY_API ferry_status ferry_pending_route_finish(ferry_pending_route* pending,
                                                  ferry_route** out_route);
FERRY_API void ferry_pending_route_free(ferry_pending_route* pending);
FERRY_API ferry_status ferry_pending_delivery_finish(ferry_pending_delivery* pending,
                                                     ferry_delivery** out_delivery);
FERRY_API void ferry_pending_delivery_free(ferry_pending_delivery* pending);
FERRY_API ferry_status ferry_pending_combine_finish(ferry_pending_combine* pending);
FERRY_API void ferry_pending_combine_free(ferry_pending_combine* pending);

// The environment.

// Every FERRY_* variable, its value and where it came from, as `ferry env --explain` prints them.
typedef struct ferry_env_table ferry_env_table;

typedef struct ferry_env_line {
  size_t struct_bytes;
  const char* name;
  const char* value;     // as in force; "(set)" for secrets
  const char* source;    // "default" or "environment"
  const char* fallback;  // the default
  const char* help;
} ferry_env_line;

// Reads the environment of this process as it is now.
FERRY_API ferry_status ferry_env_table_open(ferry_env_table** out_table);
FERRY_API ferry_status ferry_env_table_num_lines(const ferry_env_table* table,
                                                 size_t* out_num_lines);
FERRY_API ferry_status ferry_env_table_line(const ferry_env_table* table,
                                            size_t index,
                                            ferry_env_line* out_line);
FERRY_API void ferry_env_table_free(ferry_env_table* table);

// ferry_<struct>_init(&value) sets struct_bytes and leaves every other field its default.

#define FERRY_DEFINE_INIT(type)                 \
  static inline void type##_init(type* value) { \
    memset(value, 0, sizeof *value);            \
    value->struct_bytes = sizeof *value;        \
  }
FERRY_DEFINE_INIT(ferry_tensor)
FERRY_DEFINE_INIT(ferry_group_config)
FERRY_DEFINE_INIT(ferry_exchange_config)
FERRY_DEFINE_INIT(ferry_memory_need)
FERRY_DEFINE_INIT(ferry_counters)
FERRY_DEFINE_INIT(ferry_route_options)
FERRY_DEFINE_INIT(ferry_delivery_outputs)
FERRY_DEFINE_INIT(ferry_dispatch_options)
FERRY_DEFINE_INIT(ferry_combine_options)
FERRY_DEFINE_INIT(ferry_env_line)
#undef FERRY_DEFINE_INIT

#ifdef __cplusplus
}
#endif
