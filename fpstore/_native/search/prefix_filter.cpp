#include "search/prefix_filter.hpp"

#include <memory>
#include <new>

namespace fpstore {

namespace {

constexpr uint64_t kRoom = 2 * kMaxEntries;  // rows that are decoded at a time

}  // namespace

Status mark_prefixes(const Kernels& kernels, unsigned words, const TableView& table, unsigned bits, uint64_t* to, Stopper* stop, Fault* fault) {
  const std::unique_ptr<uint64_t[]> rows(new (std::nothrow) uint64_t[kRoom * words + 8]);
  if (!rows) return (*fault = Fault{Status::out_of_memory}).status;
  for (uint64_t block = 0; block < table.block_count;) {
    Decoded decoded{rows.get(), kRoom, nullptr};
    const Status status = kernels.decode_blocks(table, {block, table.block_count}, &decoded, fault);
    if (status != Status::ok) return status;
    if (should_stop(stop, decoded.written)) return (*fault = Fault{Status::interrupted}).status;
    for (uint64_t i = 0; i < decoded.written; ++i) {
      const uint64_t prefix = rows[i * words] >> (64 - bits);
      to[prefix / 64] |= uint64_t{1} << prefix % 64;
    }
    block += decoded.blocks;
  }
  return Status::ok;
}

void take_filter(const uint64_t* filter, unsigned bits, TableProbe* probe) {
  probe->filter = filter;
  probe->filter_bits = bits;
  uint64_t filled = 0;
  for (uint64_t i = 0; i < uint64_t{1} << (bits - 6); ++i) filled += ones(filter[i]);
  probe->filled = static_cast<double>(filled) / static_cast<double>(uint64_t{1} << bits);
}

}  // namespace fpstore
