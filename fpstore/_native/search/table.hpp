// Mapped tables: what a search asks of one, whatever its kind.
#pragma once
#include <algorithm>

#include "format/errors.hpp"
#include "format/header.hpp"
#include "format/span.hpp"
#include "isa/kernels.hpp"

namespace fpstore {

// A table whose entries are found by their block and their rank in it. Threads may share it; the
// mapping outlives it.
class AnyTable {
 public:
  const File file;
  unsigned width = 0;
  uint64_t block_count = 0;
  uint64_t set_digest = 0;

  explicit AnyTable(File mapped) : file(std::move(mapped)) {}
  virtual ~AnyTable() = default;
  AnyTable(const AnyTable&) = delete;
  AnyTable& operator=(const AnyTable&) = delete;

  unsigned words() const { return words_of(width); }
  void check_range(const BlockRange& range) const {
    if (range.begin > range.end || range.end > block_count)
      throw std::out_of_range("block range outside the table");
  }

  // Words of a decoded value, and the room, in values, that decode() takes to decode at least one
  // block, and no more than the range.
  virtual unsigned value_words() const = 0;
  virtual uint64_t decode_room(const BlockRange& range, uint64_t room) const = 0;
  // Decodes blocks from the first on, while they fit; there is room for 8 values more.
  virtual Status decode(const BlockRange& range, Decoded* to, Fault* fault) const = 0;
  // The entries at n places.
  virtual Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
                      Fault* fault) const = 0;
  virtual Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop,
                      Fault* fault) const = 0;
  // The key of a block: its last entry.
  virtual Status read_key(uint64_t block, uint64_t* out, Fault* fault) const = 0;
  virtual Status compare(const BlockRange& range, const Queries& queries,
                         const ScanOptions& options, Sink* sink, Fault* fault) const = 0;
};

// A table of blocks.
class Table : public AnyTable {
 public:
  TableHeader header;
  TableView view{};

  Table(Span<const uint8_t> data, std::string path);
  const Kernels& kernels() const { return fpstore::kernels(width); }

  unsigned value_words() const override { return words(); }
  uint64_t decode_room(const BlockRange& range, uint64_t room) const override;
  Status decode(const BlockRange& range, Decoded* to, Fault* fault) const override {
    return kernels().decode_blocks(view, range, to, fault);
  }
  Status read(const uint64_t* blocks, const uint32_t* ranks, size_t n, uint64_t* out,
              Fault* fault) const override;
  Status find(const Queries& fingerprints, uint64_t* blocks, uint32_t* ranks, Stopper* stop,
              Fault* fault) const override {
    return kernels().locate(view, fingerprints, blocks, ranks, stop, fault);
  }
  Status read_key(uint64_t block, uint64_t* out, Fault*) const override {
    out[0] = view.keys[block];
    std::copy_n(view.key_rests + block * (words() - 1), words() - 1, out + 1);
    return Status::ok;
  }
  Status compare(const BlockRange& range, const Queries& queries, const ScanOptions& options,
                 Sink* sink, Fault* fault) const override {
    return kernels().scan(view, range, queries, options, sink, fault);
  }
};

// A table of which only the header is known; its blocks are read from wherever they are.
struct TableParts {
  File file;
  TableHeader header;
  TableView view{};

  TableParts(Span<const uint8_t> start, uint64_t file_bytes, std::string path);
  unsigned words() const { return words_of(header.width); }
  // The number of blocks that these bytes are, from number first on, with kOverread bytes behind
  // them. There are the keys of the blocks, after that of the block before.
  uint64_t check_blocks(Span<const uint8_t> blocks, uint64_t first, uint64_t key_count) const;
  // Decodes these blocks while they fit. The key before the first block of a table is 0.
  Status decode(const uint8_t* blocks, const uint64_t* keys, const BlockRange& range, Decoded* to,
                Fault* fault) const;
};

// Writes what a header says of a table, wherever its other sections are, to a view of zeros.
void make_view(const TableHeader& header, TableView* view);
// Room for the decoded entries of some blocks: what is wanted, but enough for one.
uint64_t block_room(uint64_t blocks, uint64_t room);

// The nearest entries of each query within the radius, up to a limit, without those that
// nearest->absent names. The matches go to the sink.
Status nearest_entries(const AnyTable& table, const BlockRange& range, const Queries& queries,
                       uint64_t limit, const ScanOptions& options, Nearest* nearest, Sink* sink,
                       Fault* fault);

}  // namespace fpstore
