# attend_floor(NAME SOURCES a.cc b.cc ... [PUBLIC targets] [PRIVATE targets])
#
# One static library per floor of src/attend (docs: the floors). A floor links only floors that stand above
# it in the list of docs/architecture.md; scripts/check_floors.py checks the includes.
function(attend_floor name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(attend_${name} STATIC ${ARG_SOURCES})
  add_library(attend::${name} ALIAS attend_${name})
  target_include_directories(attend_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(attend_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  attend_warnings(attend_${name})
endfunction()

function(attend_warnings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual>
    # gcc 12 sees overlapping copies in every operator+ of a literal and a string (GCC bug 105651).
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
  if(ATTEND_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
  endif()
endfunction()

# attend_test(NAME SOURCES ... LINK targets... [LABELS labels])
#
# One executable; each TEST in it is one ctest case.
function(attend_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE ATTEND_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  attend_warnings(${name})
  # An empty LABELS would be dropped on the way to ctest and take TIMEOUT for its value.
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()
