// A table and its mapping, whose class in Python module_tables.cpp binds.
#pragma once
#include "format/table_view.hpp"
#include "python/module.hpp"

namespace fpstore {

struct Table {
  nb::object owner;  // keeps the mapping alive
  std::string path;
  TableHeader header;
  TableView view;

  const Kernels& kernels() const { return fpstore::kernels(header.width); }
  unsigned words() const { return words_of(header.width); }

  Table(Bytes data, std::string name);

  void check_range(uint64_t b0, uint64_t b1) const;

  // (values, entry counts, next block): decodes blocks from b0 on while they fit into room entries.
  nb::tuple decode(uint64_t b0, uint64_t b1, uint64_t room) const;
  nb::tuple scan(Rows queries, unsigned radius, uint64_t b0, uint64_t b1, const Stop* stop) const;

  // (lims, fingerprints, distances, more): the nearest entries of each query within the radius, without the absent ones, which
  // ascend; and whether there are others.
  nb::tuple nearest(Rows queries, unsigned radius, uint64_t limit, uint64_t b0, uint64_t b1, Rows absent, const Stop* stop) const;

  nb::tuple locate(Rows fingerprints) const;

  // The entry at one place, which the file `source` names.
  nb::object entry_at(uint64_t block, uint32_t rank, const std::string& source) const;

  // The keys of blocks: their last entries.
  nb::object keys_of(Words blocks) const;

  nb::object key_of(uint64_t block) const;

  void copy_key(uint64_t block, uint64_t* out) const;

  // The entries at places, given by their blocks and ranks, which the file `source` names; each block is decoded once where successive places share it.
  nb::object entries_at(Words blocks, Counts ranks, const std::string& source) const;

  // (block, rank) or None.
  nb::object locate_one(nb::handle fingerprint) const;

  static nb::tuple finish(const Sink& sink, unsigned width, size_t query_count, unsigned threads, Stopper* stop);

 private:
  // Room for the entries of a block of any width: those of one word are the most.
  static constexpr size_t kBlockWords = 2 * kMaxEntries + 8;
};

}  // namespace fpstore
