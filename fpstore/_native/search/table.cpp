#include "search/table.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace fpstore {

void make_view(const TableHeader& header, TableView* view) {
  view->block_count = header.block_count;
  view->fingerprint_count = header.fingerprint_count;
  view->seed = block_seed(header);
  view->block_bytes = header.block_bytes;
  view->directory_bits = header.directory_bits;
  make_permutation(header.permutation, header.width, &view->forward, &view->inverse);
  view->codec = codec_of(header);
  if (view->codec == Codec::huffman) make_decode_table(header.code_bits, &view->code);
}

uint64_t block_room(uint64_t blocks, uint64_t room) {
  return std::clamp<uint64_t>(room, 2 * kMaxEntries, std::max<uint64_t>(blocks, 2) * kMaxEntries);
}

Table::Table(Span<const uint8_t> data, std::string path) : AnyTable({std::move(path)}) {
  need(reinterpret_cast<uintptr_t>(data.data) % alignof(uint64_t) == 0,
       "a table begins at a multiple of 8 bytes");
  Fault fault;
  check(parse_header(data.data, data.size, &header, &fault), fault, file);
  width = header.width;
  block_count = header.block_count;
  set_digest = header.set_digest;
  make_view(header, &view);
  view.blocks = data.data + header.blocks_offset;
  view.keys = reinterpret_cast<const uint64_t*>(data.data + header.keys_offset);
  view.key_rests = view.keys + header.block_count;
  view.directory = reinterpret_cast<const uint64_t*>(data.data + header.directory_offset);
}

TableParts::TableParts(Span<const uint8_t> start, uint64_t file_bytes, std::string path)
    : file{std::move(path)} {
  const uint64_t known = start.size < kHeaderBytes ? start.size : file_bytes;
  Fault fault;
  check(parse_header(start.data, known, &header, &fault), fault, file);
  make_view(header, &view);
}

uint64_t TableParts::check_blocks(Span<const uint8_t> blocks, uint64_t first,
                                  uint64_t key_count) const {
  const uint64_t n = blocks.size < kOverread ? 0 : (blocks.size - kOverread) / view.block_bytes;
  if (first > view.block_count || n > view.block_count - first || key_count != n + 1)
    throw std::out_of_range("block range outside the table");
  return n;
}

Status TableParts::decode(const uint8_t* blocks, const uint64_t* keys, const BlockRange& range,
                          Decoded* to, Fault* fault) const {
  // The index has the leading words, and the rest elsewhere.
  std::vector<uint64_t> leading, rests;
  const uint64_t n = range.end - range.begin;
  for (uint64_t i = 0; i <= n; ++i) {
    const uint64_t* const key = keys + i * words();
    leading.push_back(key[0]);
    if (i) rests.insert(rests.end(), key + 1, key + words());
  }
  // on the heap: a view holds the tables of the code
  const auto part = std::make_unique<TableView>(view);
  part->blocks = blocks;
  part->keys = leading.data() + 1;
  part->key_rests = rests.data();
  part->block_count = n;
  part->first_block = range.begin;
  part->key_before = range.begin ? leading[0] : 0;
  const Status status = kernels(header.width).decode_blocks(*part, {0, n}, to, fault);
  if (fault->block != UINT64_MAX) fault->block += range.begin;
  return status;
}

uint64_t Table::decode_room(const BlockRange& range, uint64_t room) const {
  return block_room(range.end - range.begin, room);
}

// Decodes a block once where successive places share it.
Status Table::read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
                   Fault* fault) const {
  constexpr size_t kBlockWords =
      2 * kMaxEntries +
      8;  // for the entries of a block of any width: those of one word are the most
  thread_local const std::unique_ptr<uint64_t[]> entries(new uint64_t[kBlockWords]);
  uint32_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint64_t block = blocks[i];
    if (block >= block_count)
      return (*fault = Fault{Status::bad_place, block, block_count, block}).status;
    if (i == 0 || block != blocks[i - 1]) {
      Decoded to{entries.get(), kBlockWords / words(), &count};
      FPSTORE_TRY(kernels().decode_blocks(view, {block, block + 1}, &to, fault));
    }
    if (ranks[i] >= count)
      return (*fault = Fault{Status::bad_place, block, count, ranks[i]}).status;
    std::copy_n(entries.get() + ranks[i] * words(), words(), out + i * words());
  }
  return Status::ok;
}

Status nearest_entries(const AnyTable& table, const BlockRange& range, const Queries& queries,
                       uint64_t limit, const ScanOptions& options, Nearest* nearest, Sink* sink,
                       Fault* fault) {
  if (!start_nearest(nearest, table.words(), queries.count, limit, options.radius))
    return no_memory(fault);
  ScanOptions kept = options;
  kept.nearest = nearest;
  FPSTORE_TRY(table.compare(range, queries, kept, sink, fault));
  return hand_over(nearest, sink) ? Status::ok : no_memory(fault);
}

}  // namespace fpstore
