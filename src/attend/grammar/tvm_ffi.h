// Wrapper of tvm-ffi's C interface (apache-tvm-ffi 0.1.15): objects that other libraries register, their
// methods by name, and arguments and results of these. The library is loaded at run time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attend::tvm_ffi {

// Structs with the memory layout of the interface.
enum TypeIndex : int32_t {
  kNone = 0,
  kInt = 1,
  kBool = 2,
  kTensorPointer = 7,  // a DLTensor
  kSmallText = 11,     // up to 7 bytes in the value itself
  kText = 65,
  kFirstObject = 64,  // first type of reference-counted objects
};
struct Any {
  int32_t type_index = kNone;
  uint32_t small_length = 0;  // size of kSmallText
  union {
    int64_t integer = 0;
    void* pointer;
    char small_text[8];
  };
};
struct Bytes {
  const char* data;
  size_t size;
};

class Library;

// Argument or result of a call. It holds a reference to its object.
class Value {
 public:
  Value() = default;  // none
  explicit Value(int64_t integer) { any_.type_index = kInt, any_.integer = integer; }
  explicit Value(bool boolean) { any_.type_index = kBool, any_.integer = boolean; }
  // Wraps a DLTensor, which must outlive the call that it is an argument of.
  static Value tensor(void* dl_tensor);
  // Adopts the reference that `any` holds.
  Value(std::shared_ptr<const Library> library, Any any);
  ~Value();
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(Value other) noexcept;

  const Any& any() const { return any_; }
  bool boolean() const { return any_.integer != 0; }
  int64_t integer() const { return any_.integer; }
  std::string text() const;

 private:
  std::shared_ptr<const Library> library_;  // library of the object
  Any any_;
};

// tvm-ffi's library together with a library that registers its classes with it.
class Library : public std::enable_shared_from_this<Library> {
 public:
  // Throws Error(kNotFound) with the loader's message, and Error(kUnsupported) for another version.
  static std::shared_ptr<const Library> load(const std::filesystem::path& tvm_ffi,
                                             const std::filesystem::path& classes);

  Value bytes(std::string_view content) const;
  Value text(std::string_view content) const;
  Value array(std::span<const Value> items) const;
  // Method of a class. Throws Error(kUnsupported) if it does not exist.
  struct Method {
    void* function = nullptr;
  };
  Method method(const std::string& type, std::string_view name) const;
  // Calls a method. For a method of an object, the first argument is the object. Throws
  // Error(kInvalidArgument) with the method's message. May be called from any thread.
  Value call(Method method, std::span<const Value> arguments) const;
  Value call(Method method, std::initializer_list<Value> arguments) const {
    return call(method, std::span(arguments.begin(), arguments.size()));
  }

  void retain(void* object) const { functions_.retain(object); }
  void release(void* object) const { functions_.release(object); }

 private:
  Library() = default;
  std::string raised_error() const;

  struct Functions {
    void (*version)(uint32_t* major_minor_patch);
    int (*retain)(void* object);
    int (*release)(void* object);
    int (*type_index)(const Bytes* key, int32_t* index);
    const void* (*type_info)(int32_t index);
    int (*global_function)(const Bytes* name, void** function);
    int (*call)(void* function, const Any* arguments, int32_t num, Any* result);
    void (*take_error)(void** error);
    int (*make_text)(const Bytes* content, Any* text);
    int (*make_bytes)(const Bytes* content, Any* bytes);
  };
  Functions functions_ = {};
  Method make_array_;
};

}  // namespace attend::tvm_ffi
